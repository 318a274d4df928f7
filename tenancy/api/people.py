"""`/api/v1/people`: accounts, roles, memberships."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tenancy import selectors
from tenancy.actions import memberships, people
from tenancy.api import serializers as shapes
from tenancy.api.auth import actor_of
from tenancy.api.rows import Rows


class People(Rows):
    queryset = selectors.people()
    serializer_class = shapes.PersonRow
    searched = ("email", "name")

    def row(self, found: Any) -> dict[str, Any]:
        return selectors.person_row(found)

    @extend_schema(request=shapes.NewPerson, responses={201: shapes.PersonWithPassword})
    def create(self, request: Request) -> Response:
        """A new account; its generated password is in this answer alone."""
        made = people.create(**self.asked(request, shapes.NewPerson), actor=actor_of(request))
        return self.answer(made.person, status=201, password=made.password)

    @extend_schema(request=shapes.PersonChange)
    def partial_update(self, request: Request, id: str) -> Response:
        """Made an administrator, or no longer one; 409 for the last one."""
        asked = self.asked(request, shapes.PersonChange)
        return self.answer(people.set_administrator(person=self.get_object(), **asked, actor=actor_of(request)))

    @extend_schema(request=None, responses=shapes.PersonWithPassword)
    @action(detail=True, methods=["post"], url_path="reset-password")
    def reset_password(self, request: Request, id: str) -> Response:
        """A new password, in this answer alone; every session of the person ends."""
        made = people.reset_password(person=self.get_object(), actor=actor_of(request))
        return self.answer(made.person, password=made.password)

    @extend_schema(request=None)
    @action(detail=True, methods=["post"])
    def deactivate(self, request: Request, id: str) -> Response:
        """No sign-in any more; sessions end and keys are revoked."""
        return self.answer(people.deactivate(person=self.get_object(), actor=actor_of(request)))

    @extend_schema(request=None)
    @action(detail=True, methods=["post"])
    def activate(self, request: Request, id: str) -> Response:
        """May sign in again; keys stay revoked."""
        return self.answer(people.activate(person=self.get_object(), actor=actor_of(request)))

    @extend_schema(request=shapes.NewMembership)
    @action(detail=True, methods=["post"])
    def join(self, request: Request, id: str) -> Response:
        """Belongs to a level of the tree, and to all below it."""
        asked, person = self.asked(request, shapes.NewMembership), self.get_object()
        level = selectors.level(asked["level"])
        memberships.grant(person=person, level=level, role=asked["role"], actor=actor_of(request))
        return self.answer(person)

    @extend_schema(request=shapes.EndedMembership)
    @action(detail=True, methods=["post"])
    def leave(self, request: Request, id: str) -> Response:
        """Belongs to a level no more; keys out of the person's reach are revoked."""
        asked, person = self.asked(request, shapes.EndedMembership), self.get_object()
        memberships.withdraw(person=person, level=selectors.level(asked["level"]), actor=actor_of(request))
        return self.answer(person)
