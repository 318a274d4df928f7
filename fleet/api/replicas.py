"""`/api/v1/replicas`, `/placements`: the running copies of models, and where the next one would go."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from fleet import logs, selectors
from fleet.actions import replicas
from fleet.api.log_lines import LINES, LogLines, asked_lines
from tenancy.api.auth import actor_of

_REPLICA = OpenApiParameter("replica", str, OpenApiParameter.PATH, description="the replica's id")
_MODEL = OpenApiParameter("model", str, description="of this model only")


class ReplicaRow(serializers.Serializer[Any]):
    replica = serializers.CharField()
    model = serializers.CharField()
    profile = serializers.CharField()
    state = serializers.CharField()
    reason = serializers.CharField()
    reason_code = serializers.CharField()
    node = serializers.CharField(allow_null=True, help_text="the leader's, of several")
    nodes = serializers.ListField(child=serializers.CharField(), help_text="by rank")
    fabric = serializers.CharField(allow_null=True, help_text="what joins its nodes, if there are several")
    port = serializers.IntegerField(allow_null=True)
    engine = serializers.CharField(allow_null=True)
    progress = serializers.FloatField(allow_null=True)
    failures = serializers.IntegerField()
    next_try_at = serializers.DateTimeField(allow_null=True)
    incarnation = serializers.IntegerField()
    stale = serializers.BooleanField()
    adopted = serializers.BooleanField()
    since = serializers.DateTimeField(allow_null=True)
    ready_at = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()


class EventRow(serializers.Serializer[Any]):
    at = serializers.DateTimeField()
    replica = serializers.CharField()
    model = serializers.CharField()
    node = serializers.CharField()
    state = serializers.CharField()
    reason = serializers.CharField()


@extend_schema_view(retrieve=extend_schema(parameters=[_REPLICA], responses=OpenApiTypes.OBJECT))
class Replicas(GenericViewSet[Any]):
    """The running copies of models."""

    serializer_class = ReplicaRow
    lookup_field = "replica"
    lookup_value_regex = "[^/]+"

    @extend_schema(parameters=[_MODEL], responses=ReplicaRow(many=True))
    def list(self, request: Request) -> Response:
        found = selectors.replicas(model=request.query_params.get("model"), node=request.query_params.get("node"))
        rows = self.paginate_queryset(found)
        return self.get_paginated_response(ReplicaRow(rows, many=True).data)

    def retrieve(self, request: Request, replica: str) -> Response:
        """In full, with its shards and their engines' last words."""
        return Response(selectors.replica(replica))

    @extend_schema(parameters=[_REPLICA], request=None, responses=OpenApiTypes.OBJECT)
    @action(detail=True, methods=["post"])
    def restart(self, request: Request, replica: str) -> Response:
        """Ends its engine and starts it again."""
        replicas.restart(replica=replica, actor=actor_of(request))
        return Response(selectors.replica(replica))

    @extend_schema(parameters=[_REPLICA], request=None, responses=OpenApiTypes.OBJECT)
    @action(detail=True, methods=["post"])
    def retry(self, request: Request, replica: str) -> Response:
        """Tries a failed or parked one again."""
        replicas.retry(replica=replica, actor=actor_of(request))
        return Response(selectors.replica(replica))

    @extend_schema(parameters=[_REPLICA], responses=EventRow(many=True))
    @action(detail=True, methods=["get"], pagination_class=None)
    def events(self, request: Request, replica: str) -> Response:
        """Its history, newest first; it outlives the replica."""
        return Response(EventRow(selectors.events(replica), many=True).data)

    @extend_schema(parameters=[_REPLICA, LINES], responses=LogLines)
    @action(detail=True, methods=["get"])
    def logs(self, request: Request, replica: str) -> Response:
        """The newest lines of its engine's log."""
        return Response({"lines": logs.of_replica(replica, asked_lines(request))})


class Placements(GenericViewSet[Any]):
    """Where a model's next replica would go: every candidate, and why not."""

    serializer_class = ReplicaRow
    lookup_field = "model"
    lookup_value_regex = "[^/]+"

    @extend_schema(
        parameters=[OpenApiParameter("model", str, OpenApiParameter.PATH, description="the model, by name or alias")],
        responses=OpenApiTypes.OBJECT,
    )
    def retrieve(self, request: Request, model: str) -> Response:
        return Response(selectors.explain_placement(model))
