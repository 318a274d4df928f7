"""`/api/v1/requests` and `/api/v1/usage`: read only."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from gateway import moments, selectors, spending
from gateway.models import Usage
from llmgw.cluster import why
from llmgw.cluster.errors import Invalid
from llmgw.money import written

MOST_DAYS = 3660
MOST_ROWS = 1000
_REQUEST_FILTERS = ("model", "outcome", "project", "key", "person", "replica", "session")


class RequestRow(serializers.ModelSerializer[Usage]):
    class Meta:
        model = Usage
        fields = "__all__"


class RequestInFull(RequestRow):
    why = serializers.DictField(help_text="what became of it in a sentence, and its reasons: see /why")


class UsageRow(serializers.Serializer[Any]):
    """One entry of what usage was asked `by`: a day, a model, … and its sums."""

    day = serializers.DateField(required=False)
    hour = serializers.DateTimeField(required=False)
    organisation = serializers.CharField(required=False)
    team = serializers.CharField(required=False)
    project = serializers.CharField(required=False)
    key = serializers.CharField(required=False)
    person = serializers.CharField(required=False)
    model = serializers.CharField(required=False)
    tag = serializers.CharField(required=False)
    session = serializers.CharField(required=False)
    end_user = serializers.CharField(required=False, source="end-user")
    requests = serializers.IntegerField()
    failed = serializers.IntegerField(help_text="the engine failed, time ran out, or the gateway died")
    refused = serializers.IntegerField()
    uncounted = serializers.IntegerField(help_text="nobody could say how many tokens it was")
    estimated = serializers.IntegerField()
    hits = serializers.IntegerField(help_text="answered from the answer cache")
    prompt_tokens = serializers.IntegerField()
    completion_tokens = serializers.IntegerField()
    cached_tokens = serializers.IntegerField()
    cost = serializers.SerializerMethodField(help_text="a decimal as text, in the currency's unit")
    unpriced = serializers.IntegerField(help_text="nobody priced it")

    def get_cost(self, row: dict[str, Any]) -> str:
        return written(row["cost"])


class RequestPage(serializers.Serializer[Any]):
    next = serializers.CharField(allow_null=True, help_text="`before` of the next page")
    results = RequestRow(many=True)


def _filters(*names: str) -> list[OpenApiParameter]:
    return [OpenApiParameter(name, str, description=f"only of this {name}") for name in names]


_TIMES = [
    OpenApiParameter("from", str, description="a day, or a moment in ISO 8601; the cluster's time zone if it has none"),
    OpenApiParameter("to", str, description="a day (it is included) or a moment (it is not)"),
]


class Requests(GenericViewSet[Usage]):
    """What was asked and how it went, newest first."""

    serializer_class = RequestRow
    queryset = Usage.objects.all()
    lookup_field = "request_id"
    lookup_value_regex = "[^/]+"

    pagination_class = None

    @extend_schema(
        parameters=[
            *_filters(*_REQUEST_FILTERS),
            OpenApiParameter("status", int, description="only answered with this HTTP status"),
            OpenApiParameter("tag", str, description="only with this tag: `feature`, or `feature=search`"),
            *_TIMES,
            OpenApiParameter("before", str, description="go on after this id: `next` of the page before"),
            OpenApiParameter("limit", int, description=f"at most {MOST_ROWS}; 100 if not given"),
        ],
        responses=RequestPage,
    )
    def list(self, request: Request) -> Response:
        """A page costs the same however far back it is; how many rows there are is not counted for that."""
        get = request.query_params.get
        given: dict[str, Any] = {name: get(name) for name in (*_REQUEST_FILTERS, "tag", "before")}
        status = get("status")
        if status is not None:
            given["status"] = _number("status", status, 999)
        limit = _number("limit", get("limit", "100"), MOST_ROWS)
        if value := get("from"):
            given["since"] = moments.read(value)
        if value := get("to"):
            given["until"] = moments.read(value, end=True)
        rows = [*selectors.requests(**given)[: limit + 1]]
        more = len(rows) > limit
        rows = rows[:limit]
        return Response({"next": rows[-1].request_id if more else None, "results": RequestRow(rows, many=True).data})

    @extend_schema(responses=RequestInFull)
    def retrieve(self, request: Request, request_id: str) -> Response:
        return Response({**selectors.request(request_id), "why": why.why(request_id, "request")})


class UsageSums(GenericViewSet[Any]):
    """What was used and what it cost, by day in the cluster's time zone unless asked otherwise."""

    serializer_class = UsageRow
    pagination_class = None

    @extend_schema(
        parameters=[
            *_filters(*spending.WHO),
            OpenApiParameter("tag", str, description="only with this tag: `feature`, or `feature=search`"),
            OpenApiParameter("session", str),
            OpenApiParameter("end_user", str),
            OpenApiParameter("by", str, description=f"{', '.join(spending.BY)}, or tag:NAME; day if not given"),
            OpenApiParameter("days", int, description=f"how many days back, at most {MOST_DAYS}; 30 if not given"),
            *_TIMES,
        ],
        responses=UsageRow(many=True),
    )
    def list(self, request: Request) -> Response:
        get = request.query_params.get
        days = _number("days", get("days", "30"), MOST_DAYS)
        who = {name: value for name in (*spending.WHO, "tag", "session", "end_user") if (value := get(name))}
        which = moments.within(spending.last_days(days, who), get("from"), get("to"))
        return Response(UsageRow(spending.by(which, get("by") or "day"), many=True).data)


def _number(name: str, text: str, most: int) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:10]) <= most:
        raise Invalid(f"bad_{name}", f"{name} must be a number from 1 to {most}, and is {text[:20]!r}")
    return int(text)


routes = [("requests", Requests, "request"), ("usage", UsageSums, "usage")]
