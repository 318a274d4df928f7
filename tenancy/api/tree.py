"""`/api/v1/organisations`, `teams`, `projects`."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tenancy import allowances, selectors
from tenancy.actions import tree
from tenancy.api import serializers as shapes
from tenancy.api.auth import actor_of
from tenancy.api.rows import Rows


class Levels(Rows):
    """What organisation, team and project have alike."""

    @extend_schema(request=shapes.LevelChange)
    def partial_update(self, request: Request, id: str) -> Response:
        """What may be used at the level and below, how much, and where."""
        return self.changed(request, shapes.LevelChange)

    @extend_schema(request=None, responses=shapes.Allowance)
    @action(detail=True, methods=["get"])
    def allowance(self, request: Request, id: str) -> Response:
        """What it and everything above it say, and what holds."""
        return Response(shapes.Allowance(allowances.of(self.get_object())).data)

    def destroy(self, request: Request, id: str) -> Response:
        """An empty level goes; 409 while anything is below it."""
        tree.delete(level=self.get_object(), actor=actor_of(request))
        return Response(status=204)


class Organisations(Levels):
    queryset = selectors.organisations()
    serializer_class = shapes.OrganisationRow

    def row(self, found: Any) -> dict[str, Any]:
        return selectors.organisation_row(found)

    @extend_schema(request=shapes.NewOrganisation, responses={201: shapes.OrganisationRow})
    def create(self, request: Request) -> Response:
        asked = self.asked(request, shapes.NewOrganisation)
        return self.answer(tree.create_organisation(**asked, actor=actor_of(request)), status=201)


class Teams(Levels):
    queryset = selectors.teams()
    serializer_class = shapes.TeamRow

    def row(self, found: Any) -> dict[str, Any]:
        return selectors.team_row(found)

    @extend_schema(request=shapes.NewTeam, responses={201: shapes.TeamRow})
    def create(self, request: Request) -> Response:
        asked = self.asked(request, shapes.NewTeam)
        above = selectors.organisation(asked.pop("organisation"))
        return self.answer(tree.create_team(organisation=above, **asked, actor=actor_of(request)), status=201)


class Projects(Levels):
    queryset = selectors.projects()
    serializer_class = shapes.ProjectRow

    def row(self, found: Any) -> dict[str, Any]:
        return selectors.project_row(found)

    @extend_schema(request=shapes.ProjectChange)
    def partial_update(self, request: Request, id: str) -> Response:
        """What may be used in the project, how much, and where; whether answers are reused and requests kept."""
        return self.changed(request, shapes.ProjectChange)

    @extend_schema(request=shapes.NewProject, responses={201: shapes.ProjectRow})
    def create(self, request: Request) -> Response:
        asked = self.asked(request, shapes.NewProject)
        above = selectors.team(asked.pop("team"))
        return self.answer(tree.create_project(team=above, **asked, actor=actor_of(request)), status=201)
