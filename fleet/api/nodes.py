"""`/api/v1/nodes`: the machines, and how one joins."""

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
from fleet.actions import joining, nodes
from fleet.api.bodies import read
from fleet.api.log_lines import LINES, LogLines, asked_lines
from tenancy.api.auth import actor_of

_NODE = OpenApiParameter("node", str, OpenApiParameter.PATH, description="the node's id")
_FORCE = OpenApiParameter("force", bool, description="true: although engines run there")


class NodeRow(serializers.Serializer[Any]):
    node = serializers.CharField()
    state = serializers.CharField(help_text="ready, cordoned, draining, unsettled, away, lost, refused, unknown")
    reason = serializers.CharField()
    location = serializers.CharField(help_text="site/room/row/rack, from its labels")
    pdus = serializers.ListField(child=serializers.CharField())
    address = serializers.CharField(allow_null=True)
    connected = serializers.BooleanField()
    cordoned = serializers.BooleanField()
    draining = serializers.BooleanField()
    replicas = serializers.IntegerField()
    ready = serializers.IntegerField()
    cpu_count = serializers.IntegerField(allow_null=True)
    cpu_reserved = serializers.IntegerField()
    memory_bytes = serializers.IntegerField(allow_null=True)
    memory_free_bytes = serializers.IntegerField(allow_null=True)
    memory_reserved_bytes = serializers.IntegerField()
    disk_free_bytes = serializers.IntegerField(allow_null=True)
    load_1m = serializers.FloatField(allow_null=True)
    gpus = serializers.IntegerField(allow_null=True, help_text="null: not known")
    engines = serializers.ListField(child=serializers.CharField(), allow_null=True)
    labels = serializers.DictField(child=serializers.CharField())
    agent_version = serializers.CharField(allow_null=True)
    last_seen = serializers.DateTimeField(allow_null=True)


class EngineBuild(serializers.Serializer[Any]):
    engine = serializers.CharField()
    build = serializers.CharField(help_text="auto, none, or one by name")


class Labels(serializers.Serializer[Any]):
    labels = serializers.DictField(child=serializers.CharField(allow_null=True), help_text="null takes a label away")


class JoinAsked(serializers.Serializer[Any]):
    node = serializers.CharField(required=False, default="", allow_blank=True)


class JoinCode(serializers.Serializer[Any]):
    code = serializers.CharField(help_text="shown once")
    node = serializers.CharField()
    expires = serializers.DateTimeField()


@extend_schema_view(retrieve=extend_schema(parameters=[_NODE], responses=OpenApiTypes.OBJECT))
class Nodes(GenericViewSet[Any]):
    """The machines. Nothing is placed on a cordoned one; a draining one is emptied."""

    serializer_class = NodeRow
    lookup_field = "node"
    lookup_value_regex = "[^/]+"

    @extend_schema(responses=NodeRow(many=True))
    def list(self, request: Request) -> Response:
        rows = self.paginate_queryset(selectors.nodes())
        return self.get_paginated_response(NodeRow(rows, many=True).data)

    def retrieve(self, request: Request, node: str) -> Response:
        """In full: facts, replicas, engines that no replica describes."""
        return Response(selectors.node(node))

    @extend_schema(parameters=[_NODE, _FORCE], responses={204: None})
    def destroy(self, request: Request, node: str) -> Response:
        """Forgets the node and revokes its certificates."""
        nodes.remove(node_id=node, actor=actor_of(request), force=request.query_params.get("force") == "true")
        return Response(status=204)

    @extend_schema(parameters=[_NODE], request=None, responses=OpenApiTypes.OBJECT)
    @action(detail=True, methods=["post"])
    def cordon(self, request: Request, node: str) -> Response:
        nodes.cordon(node_id=node, actor=actor_of(request))
        return Response(selectors.node(node))

    @extend_schema(parameters=[_NODE], request=None, responses=OpenApiTypes.OBJECT)
    @action(detail=True, methods=["post"])
    def uncordon(self, request: Request, node: str) -> Response:
        nodes.uncordon(node_id=node, actor=actor_of(request))
        return Response(selectors.node(node))

    @extend_schema(parameters=[_NODE], request=None, responses=OpenApiTypes.OBJECT)
    @action(detail=True, methods=["post"])
    def drain(self, request: Request, node: str) -> Response:
        nodes.drain(node_id=node, actor=actor_of(request))
        return Response(selectors.node(node))

    @extend_schema(parameters=[_NODE], request=None, responses=OpenApiTypes.OBJECT)
    @action(detail=True, methods=["post"])
    def settle(self, request: Request, node: str) -> Response:
        """Lets it end engines that another store ordered."""
        nodes.settle(node_id=node, actor=actor_of(request))
        return Response(selectors.node(node))

    @extend_schema(parameters=[_NODE], request=Labels, responses=OpenApiTypes.OBJECT)
    @action(detail=True, methods=["post"])
    def labels(self, request: Request, node: str) -> Response:
        nodes.label(node_id=node, changes=read(Labels, request)["labels"], actor=actor_of(request))
        return Response(selectors.node(node))

    @extend_schema(parameters=[_NODE], request=EngineBuild, responses=OpenApiTypes.OBJECT)
    @action(detail=True, methods=["post"], url_path="engine-build")
    def engine_build(self, request: Request, node: str) -> Response:
        """Chooses which build of an engine it installs; it is told at once."""
        nodes.engine_build(node_id=node, actor=actor_of(request), **read(EngineBuild, request))
        return Response(selectors.node(node))

    @extend_schema(parameters=[_NODE, LINES], responses=LogLines)
    @action(detail=True, methods=["get"])
    def logs(self, request: Request, node: str) -> Response:
        """The newest lines of its agent's log."""
        return Response({"lines": logs.of_agent(node, asked_lines(request))})

    @extend_schema(request=JoinAsked, responses={201: JoinCode})
    @action(detail=False, methods=["post"], url_path="join-code")
    def join_code(self, request: Request) -> Response:
        """A code with which a machine joins by itself; used once, within the hour."""
        made = joining.make(node_id=read(JoinAsked, request)["node"], actor=actor_of(request))
        return Response({"code": made.code, "node": made.node_id, "expires": made.expires_at}, status=201)
