"""The one base of the tree's API views: rows of a query, listed in pages, searched as people search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.db.models import Model, QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer, Serializer
from rest_framework.viewsets import GenericViewSet

from llmgw.fold import found_in
from tenancy.actions import limits
from tenancy.api.auth import actor_of


class Rows(GenericViewSet[Any]):
    """A noun by its public id. A subclass says its query, its row and what is searched."""

    lookup_field = "public_id"
    lookup_url_kwarg = "id"
    lookup_value_regex = "[0-9a-f]+"
    searched: ClassVar[tuple[str, ...]] = ("path",)

    def row(self, found: Any) -> dict[str, Any]:
        raise NotImplementedError

    @extend_schema(parameters=[OpenApiParameter("search", str, description="as people search: case and dots aside")])
    def list(self, request: Request) -> Response:
        rows = self.paginate_queryset(self._searched(self.get_queryset()))
        return self.get_paginated_response(self._shape([self.row(r) for r in rows or ()], many=True).data)

    def retrieve(self, request: Request, id: str) -> Response:
        return self.answer(self.get_object())

    def answer(self, found: Model, status: int = 200, **more: Any) -> Response:
        """The row as it stands now, counts included."""
        fresh = self.get_queryset().get(pk=found.pk)
        return Response({**self._shape(self.row(fresh)).data, **more}, status=status)

    def changed(self, request: Request, shape: type[Serializer[Any]]) -> Response:
        """The limits and terms that the body names, laid over what the row says."""
        terms = self.asked(request, shape, partial=True)
        figures = terms.pop("limits", None)
        row = limits.change(level=self.get_object(), limits=figures, terms=terms, actor=actor_of(request))
        return self.answer(row)

    def asked(self, request: Request, shape: type[Serializer[Any]], partial: bool = False) -> dict[str, Any]:
        """The request's body; raises DRF's ValidationError with every problem."""
        body = shape(data=request.data, partial=partial)
        body.is_valid(raise_exception=True)
        fields: dict[str, Any] = body.validated_data
        return fields

    def _shape(self, rows: Any, many: bool = False) -> BaseSerializer[Any]:
        assert self.serializer_class is not None
        return self.serializer_class(rows, many=many)

    def _searched(self, found: QuerySet[Any]) -> QuerySet[Any] | Sequence[Any]:
        query = self.request.query_params.get("search", "")
        if not query:
            return found
        return [r for r in found if any(found_in(query, str(getattr(r, name))) for name in self.searched)]
