"""`/api/v1/requests` and `/api/v1/usage`: read only."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from gateway import selectors
from gateway.models import Usage
from llmgw.cluster import why
from llmgw.cluster.errors import Invalid

MOST_DAYS = 366


class RequestRow(serializers.ModelSerializer[Usage]):
    class Meta:
        model = Usage
        fields = "__all__"


class RequestInFull(RequestRow):
    why = serializers.DictField(help_text="what became of it in a sentence, and its reasons: see /why")


class Day(serializers.Serializer[Any]):
    day = serializers.DateField()
    requests = serializers.IntegerField()
    prompt_tokens = serializers.IntegerField()
    completion_tokens = serializers.IntegerField()
    cached_tokens = serializers.IntegerField()


def _filters(*names: str) -> list[OpenApiParameter]:
    return [OpenApiParameter(name, str, description=f"only of this {name}") for name in names]


class Requests(GenericViewSet[Usage]):
    """What was asked and how it went, newest first."""

    serializer_class = RequestRow
    queryset = Usage.objects.all()
    lookup_field = "request_id"
    lookup_value_regex = "[^/]+"

    @extend_schema(parameters=_filters("model", "outcome", "project", "key"), responses=RequestRow(many=True))
    def list(self, request: Request) -> Response:
        given = {name: request.query_params.get(name) for name in ("model", "outcome", "project", "key")}
        rows = self.paginate_queryset(selectors.requests(**given))
        return self.get_paginated_response(RequestRow(rows, many=True).data)

    @extend_schema(responses=RequestInFull)
    def retrieve(self, request: Request, request_id: str) -> Response:
        return Response({**selectors.request(request_id), "why": why.why(request_id, "request")})


class UsageByDay(GenericViewSet[Any]):
    """Use by day in the cluster's time zone, oldest first."""

    serializer_class = Day
    pagination_class = None

    @extend_schema(
        parameters=[
            *_filters("person", "project", "key", "model"),
            OpenApiParameter("days", int, description=f"how many days back, at most {MOST_DAYS}; 30 if not given"),
        ],
        responses=Day(many=True),
    )
    def list(self, request: Request) -> Response:
        get = request.query_params.get
        text = request.query_params.get("days", "30")
        if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MOST_DAYS:
            raise Invalid("bad_days", f"days must be a number from 1 to {MOST_DAYS}, and is {text[:20]!r}")
        found = selectors.by_day(
            days=int(text), person=get("person"), project=get("project"), key=get("key"), model=get("model")
        )
        return Response(Day(found, many=True).data)


routes = [("requests", Requests, "request"), ("usage", UsageByDay, "usage")]
