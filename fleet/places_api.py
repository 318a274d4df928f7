"""`/api/v1/facility` and `/api/v1/fabrics`: racks, rows, rooms, sites and PDUs; what joins the nodes."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from fleet import selectors
from fleet.actions import places
from llmgw.cluster.errors import NotFound
from tenancy.api.auth import actor_of

_PLACE = OpenApiParameter("place", str, OpenApiParameter.PATH, description="rack:NAME; also row, room, site, pdu")
_NAME = OpenApiParameter("name", str, OpenApiParameter.PATH, description="the fabric's name")


class PlaceRow(serializers.Serializer[Any]):
    kind = serializers.CharField(help_text="rack, row, room, site, pdu")
    name = serializers.CharField()
    within = serializers.CharField(help_text="where it stands: site/room/row")
    nodes = serializers.ListField(child=serializers.CharField())
    models = serializers.ListField(child=serializers.CharField())
    draws_w = serializers.IntegerField(allow_null=True, help_text="its cards, as last measured")
    may_draw_w = serializers.IntegerField(help_text="with each claimed card at its limit, and the nodes besides")
    power_cap_w = serializers.IntegerField(allow_null=True)
    held = serializers.BooleanField()
    note = serializers.CharField()


class HoldAsked(serializers.Serializer[Any]):
    note = serializers.CharField(default="", allow_blank=True, max_length=200)


class CapAsked(serializers.Serializer[Any]):
    watts = serializers.IntegerField(allow_null=True, min_value=1, help_text="null: no cap")


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


class Facility(GenericViewSet[Any]):
    """Racks, rows, rooms, sites and PDUs, by the nodes' labels."""

    serializer_class = PlaceRow
    pagination_class = None
    lookup_field = "place"
    lookup_value_regex = "[^/]+"

    @extend_schema(responses=PlaceRow(many=True))
    def list(self, request: Request) -> Response:
        return Response(PlaceRow(selectors.places(), many=True).data)

    @extend_schema(parameters=[_PLACE], responses=PlaceRow)
    def retrieve(self, request: Request, place: str) -> Response:
        kind, name = _split(place)
        return Response(PlaceRow(selectors.place(kind, name)).data)

    @extend_schema(parameters=[_PLACE], request=HoldAsked, responses=PlaceRow)
    @action(detail=True, methods=["post"])
    def hold(self, request: Request, place: str) -> Response:
        """Places nothing new there; what runs goes on."""
        kind, name = _split(place)
        asked = _read(HoldAsked, request)
        return Response(PlaceRow(places.hold(kind=kind, name=name, actor=actor_of(request), **asked)).data)

    @extend_schema(parameters=[_PLACE], request=None, responses=PlaceRow)
    @action(detail=True, methods=["post"])
    def release(self, request: Request, place: str) -> Response:
        """Places replicas there again."""
        kind, name = _split(place)
        return Response(PlaceRow(places.release(kind=kind, name=name, actor=actor_of(request))).data)

    @extend_schema(parameters=[_PLACE], request=CapAsked, responses=PlaceRow)
    @action(detail=True, methods=["post"])
    def cap(self, request: Request, place: str) -> Response:
        """What its nodes together may come to draw."""
        kind, name = _split(place)
        asked = _read(CapAsked, request)
        return Response(PlaceRow(places.cap(kind=kind, name=name, actor=actor_of(request), **asked)).data)


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


def _split(place: str) -> tuple[str, str]:
    kind, colon, name = place.partition(":")
    if not colon:
        raise NotFound("no_such_place", f"a place is rack:NAME, row:NAME or pdu:NAME, and not {place}")
    return kind, name


def _read(shape: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    asked = shape(data=request.data)
    asked.is_valid(raise_exception=True)
    return dict(asked.validated_data)


routes = [("facility", Facility, "facility"), ("fabrics", Fabrics, "fabric")]
