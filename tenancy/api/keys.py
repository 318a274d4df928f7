"""`/api/v1/keys`."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tenancy import allowances, selectors
from tenancy.actions import keys
from tenancy.api import serializers as shapes
from tenancy.api.auth import actor_of
from tenancy.api.rows import Rows
from tenancy.models import Key


class Keys(Rows):
    queryset = selectors.keys()
    serializer_class = shapes.KeyRow
    searched = ("name", "prefix")

    def row(self, found: Any) -> dict[str, Any]:
        return selectors.key_row(found)

    def get_queryset(self) -> QuerySet[Key]:
        asked = self.request.query_params.get("live", "") if self.action == "list" else ""
        return selectors.keys(living=asked.lower() in ("1", "true"))

    @extend_schema(
        parameters=[
            OpenApiParameter("live", bool, description="leave out revoked and expired ones"),
            OpenApiParameter("search", str, description="as people search: case and dots aside"),
        ]
    )
    def list(self, request: Request) -> Response:
        return super().list(request)

    @extend_schema(request=shapes.NewKey, responses={201: shapes.KeyWithSecret})
    def create(self, request: Request) -> Response:
        """A new key; it is in this answer alone."""
        asked = self.asked(request, shapes.NewKey)
        person = selectors.person(asked.pop("person")) if asked["person"] else asked.pop("person")
        project = selectors.project(asked.pop("project"))
        made = keys.create(project=project, person=person, **asked, actor=actor_of(request))
        return self.answer(made.key, status=201, key=made.secret)

    @extend_schema(request=shapes.KeyChange)
    def partial_update(self, request: Request, id: str) -> Response:
        """What the key may use and how much, and who goes first."""
        return self.changed(request, shapes.KeyChange)

    @extend_schema(request=None, responses=shapes.Allowance)
    @action(detail=True, methods=["get"])
    def allowance(self, request: Request, id: str) -> Response:
        """What it and everything above it say, and what holds."""
        return Response(shapes.Allowance(allowances.of(self.get_object())).data)

    def destroy(self, request: Request, id: str) -> Response:
        """Revoked: refused everywhere within two seconds. The row stays."""
        return self.answer(keys.revoke(key=self.get_object(), actor=actor_of(request)))
