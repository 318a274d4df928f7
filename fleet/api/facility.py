"""`/api/v1/facility`: racks, rows, rooms, sites and PDUs."""

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
from fleet.api.bodies import read
from llmgw.cluster.errors import NotFound
from tenancy.api.auth import actor_of

_PLACE = OpenApiParameter("place", str, OpenApiParameter.PATH, description="rack:NAME; also row, room, site, pdu")


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
        asked = read(HoldAsked, request)
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
        asked = read(CapAsked, request)
        return Response(PlaceRow(places.cap(kind=kind, name=name, actor=actor_of(request), **asked)).data)


def _split(place: str) -> tuple[str, str]:
    kind, colon, name = place.partition(":")
    if not colon:
        raise NotFound("no_such_place", f"a place is rack:NAME, row:NAME or pdu:NAME, and not {place}")
    return kind, name
