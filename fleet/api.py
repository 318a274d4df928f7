"""`/api/v1/nodes`, `/replicas`, `/certificates`: the fleet, by the same selectors and actions as the commands."""

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
from fleet.actions import certificates, joining, nodes, replicas
from fleet.selectors import machines
from tenancy.api.auth import actor_of

_NODE = OpenApiParameter("node", str, OpenApiParameter.PATH, description="the node's id")
_REPLICA = OpenApiParameter("replica", str, OpenApiParameter.PATH, description="the replica's id")
_SERIAL = OpenApiParameter("serial", str, OpenApiParameter.PATH, description="the certificate's serial")
_LINES = OpenApiParameter("lines", int, description="how many of the newest lines (100)")
_MODEL = OpenApiParameter("model", str, description="of this model only")
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


class EngineRow(serializers.Serializer[Any]):
    node = serializers.CharField()
    engine = serializers.CharField()
    version = serializers.CharField(allow_null=True)
    build = serializers.CharField(allow_null=True)
    state = serializers.CharField(help_text="ready, installing, problem, absent")
    problem = serializers.CharField(allow_null=True)
    installing = serializers.CharField(allow_null=True, help_text="what its installation does now")
    wanted = serializers.CharField(allow_null=True, help_text="the version that the settings want there")
    chosen = serializers.CharField(help_text="the build that was chosen; auto: what the hardware runs")
    builds = serializers.ListField(child=serializers.CharField(), help_text="those that may be chosen")
    tested_with = serializers.CharField(allow_null=True, help_text="real, or a stand-in")


class GpuRow(serializers.Serializer[Any]):
    node = serializers.CharField()
    device = serializers.CharField(help_text="0, or 0/mig2 for a MIG instance")
    gpu_class = serializers.CharField()
    state = serializers.CharField(help_text="used, free, unusable")
    model = serializers.CharField(allow_null=True, help_text="what works on it")
    replica = serializers.CharField(allow_null=True)
    rank = serializers.IntegerField(allow_null=True)
    memory_bytes = serializers.IntegerField(allow_null=True)
    memory_used_bytes = serializers.IntegerField(allow_null=True)
    busy_percent = serializers.FloatField(allow_null=True, help_text="null: nobody knows, as of a MIG instance")
    busy_by = serializers.CharField(allow_null=True, help_text="sm: measured; draw: its draw against its limit")
    power_w = serializers.FloatField(allow_null=True)
    power_limit_w = serializers.FloatField(allow_null=True)
    temperature_c = serializers.IntegerField(allow_null=True)
    foreign_bytes = serializers.IntegerField(allow_null=True, help_text="held by programs that are not ours")
    problem = serializers.CharField(allow_null=True)
    unusable = serializers.CharField(allow_null=True, help_text="problem, foreign, or the state of its node")
    mig_profile = serializers.CharField(allow_null=True)
    rack = serializers.CharField(allow_null=True)
    node_state = serializers.CharField()


class EngineBuild(serializers.Serializer[Any]):
    engine = serializers.CharField()
    build = serializers.CharField(help_text="auto, none, or one by name")


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


class CertificateRow(serializers.Serializer[Any]):
    serial = serializers.CharField()
    node = serializers.CharField()
    state = serializers.CharField()
    expires = serializers.DateTimeField()
    issued = serializers.DateTimeField()
    revoked = serializers.DateTimeField(allow_null=True)
    reason = serializers.CharField()


class LogLines(serializers.Serializer[Any]):
    lines = serializers.ListField(child=serializers.CharField())


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
        asked = Labels(data=request.data)
        asked.is_valid(raise_exception=True)
        nodes.label(node_id=node, changes=asked.validated_data["labels"], actor=actor_of(request))
        return Response(selectors.node(node))

    @extend_schema(parameters=[_NODE], request=EngineBuild, responses=OpenApiTypes.OBJECT)
    @action(detail=True, methods=["post"], url_path="engine-build")
    def engine_build(self, request: Request, node: str) -> Response:
        """Chooses which build of an engine it installs; it is told at once."""
        asked = EngineBuild(data=request.data)
        asked.is_valid(raise_exception=True)
        nodes.engine_build(node_id=node, actor=actor_of(request), **asked.validated_data)
        return Response(selectors.node(node))

    @extend_schema(parameters=[_NODE, _LINES], responses=LogLines)
    @action(detail=True, methods=["get"])
    def logs(self, request: Request, node: str) -> Response:
        """The newest lines of its agent's log."""
        return Response({"lines": logs.of_agent(node, _lines(request))})

    @extend_schema(request=JoinAsked, responses={201: JoinCode})
    @action(detail=False, methods=["post"], url_path="join-code")
    def join_code(self, request: Request) -> Response:
        """A code with which a machine joins by itself; used once, within the hour."""
        asked = JoinAsked(data=request.data)
        asked.is_valid(raise_exception=True)
        made = joining.make(node_id=asked.validated_data["node"], actor=actor_of(request))
        return Response({"code": made.code, "node": made.node_id, "expires": made.expires_at}, status=201)


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

    @extend_schema(parameters=[_REPLICA, _LINES], responses=LogLines)
    @action(detail=True, methods=["get"])
    def logs(self, request: Request, replica: str) -> Response:
        """The newest lines of its engine's log."""
        return Response({"lines": logs.of_replica(replica, _lines(request))})


class Engines(GenericViewSet[Any]):
    """What each node has to run models with, and what is being installed."""

    serializer_class = EngineRow

    @extend_schema(parameters=[OpenApiParameter("engine", str, description="of this one only")], responses=EngineRow(many=True))  # fmt: skip # noqa: E501
    def list(self, request: Request) -> Response:
        rows = self.paginate_queryset(selectors.engines(request.query_params.get("engine")))
        return self.get_paginated_response(EngineRow(rows, many=True).data)


class Gpus(GenericViewSet[Any]):
    """Every card and MIG instance: what works on it, and what it does now."""

    serializer_class = GpuRow

    @extend_schema(
        parameters=[
            OpenApiParameter("node", str, description="of this node only"),
            OpenApiParameter("class", str, description="of this class only"),
            OpenApiParameter("model", str, description="only those on which this model works"),
            OpenApiParameter("rack", str, description="of this rack only"),
        ],
        responses=GpuRow(many=True),
    )
    def list(self, request: Request) -> Response:
        asked = request.query_params
        found = machines.gpus(asked.get("node"), asked.get("class"), asked.get("model"), asked.get("rack"))
        return self.get_paginated_response(GpuRow(self.paginate_queryset(found), many=True).data)


class Certificates(GenericViewSet[Any]):
    """Nodes' certificates. They are issued by a join code, or by `llmgw cert issue` where the key may be written."""

    serializer_class = CertificateRow
    lookup_field = "serial"
    lookup_value_regex = "[0-9a-f]+"

    @extend_schema(responses=CertificateRow(many=True))
    def list(self, request: Request) -> Response:
        rows = self.paginate_queryset(selectors.certificates())
        return self.get_paginated_response(CertificateRow(rows, many=True).data)

    @extend_schema(parameters=[_SERIAL], responses={204: None})
    def destroy(self, request: Request, serial: str) -> Response:
        """Revokes it; its node's connection is closed within seconds."""
        certificates.revoke(which=serial, actor=actor_of(request))
        return Response(status=204)


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


def _lines(request: Request) -> int:
    try:
        return int(request.query_params.get("lines", "100"))
    except ValueError:
        raise serializers.ValidationError({"lines": "must be a number"}) from None


routes = [
    ("nodes", Nodes, "node"),
    ("engines", Engines, "engine"),
    ("gpus", Gpus, "gpu"),
    ("replicas", Replicas, "replica"),
    ("certificates", Certificates, "certificate"),
    ("placements", Placements, "placement"),
]
