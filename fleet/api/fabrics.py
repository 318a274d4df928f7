"""`/api/v1/fabrics`: what joins the nodes."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from fleet import selectors

_NAME = OpenApiParameter("name", str, OpenApiParameter.PATH, description="the fabric's name")


class FabricNode(serializers.Serializer[Any]):
    node = serializers.CharField()
    adapters = serializers.ListField(child=serializers.CharField())
    rate_gbps = serializers.FloatField(allow_null=True)
    gid_index = serializers.IntegerField(allow_null=True)
    gpus = serializers.IntegerField()
    weights = serializers.ListField(child=serializers.CharField())


class FabricRow(serializers.Serializer[Any]):
    fabric = serializers.CharField()
    kind = serializers.CharField(help_text="nvlink, infiniband, roce, ethernet")
    identity = serializers.CharField(allow_null=True, help_text="cluster and clique, or subnet manager")
    nodes = FabricNode(many=True)
    whole = serializers.ListField(child=serializers.CharField(), help_text="its nodes that have every card free")
    cards = serializers.IntegerField()
    cards_used = serializers.IntegerField()
    weights = serializers.DictField(child=serializers.IntegerField(), help_text="source: on how many of its nodes")
    replicas = serializers.ListField(child=serializers.CharField())


class FabricReason(serializers.Serializer[Any]):
    node = serializers.CharField(required=False)
    code = serializers.CharField()
    sentence = serializers.CharField()
    command = serializers.CharField()


class FabricList(serializers.Serializer[Any]):
    fabrics = FabricRow(many=True)
    off = FabricReason(many=True, help_text="why nodes are not on a fabric that they could be on")
    findings = FabricReason(many=True, help_text="what an operator should look at")


class Fabrics(GenericViewSet[Any]):
    """What joins the nodes for a replica over several of them."""

    serializer_class = FabricRow
    pagination_class = None
    lookup_field = "name"
    lookup_value_regex = "[^/]+"

    @extend_schema(responses=FabricList)
    def list(self, request: Request) -> Response:
        return Response(FabricList(selectors.all_fabrics()).data)

    @extend_schema(parameters=[_NAME], responses=FabricRow)
    def retrieve(self, request: Request, name: str) -> Response:
        return Response(FabricRow(selectors.fabric(name)).data)
