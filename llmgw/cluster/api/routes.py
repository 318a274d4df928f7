"""`/api/v1/settings`, `/audit`, `/jobs`, `/notices`: what the whole cluster shares."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from llmgw.cluster import notifying, selectors, why
from llmgw.cluster.actions import settings
from llmgw.cluster.core import settings as core
from llmgw.cluster.core.notices import KINDS
from llmgw.cluster.errors import Invalid

_LIMIT = 1000
_VERSION = OpenApiParameter("version", int, OpenApiParameter.PATH)


class SettingsChange(serializers.Serializer[Any]):
    base = serializers.IntegerField(help_text="the version this change was made from; 409 when it is not the newest")
    document = serializers.DictField(help_text="what differs from the defaults, whole")
    note = serializers.CharField(required=False, default="", allow_blank=True, max_length=200)


class SettingsShown(serializers.Serializer[Any]):
    version = serializers.IntegerField()
    document = serializers.DictField(help_text="what differs from the defaults")
    in_force = serializers.DictField(help_text="everything, defaults filled in")


class RevisionRow(serializers.Serializer[Any]):
    version = serializers.IntegerField()
    at = serializers.DateTimeField()
    actor = serializers.CharField()
    note = serializers.CharField()


class AuditRow(serializers.Serializer[Any]):
    at = serializers.DateTimeField()
    actor = serializers.CharField()
    action = serializers.CharField()
    subject = serializers.CharField()
    detail = serializers.DictField()


class JobRow(serializers.Serializer[Any]):
    job = serializers.CharField()
    kind = serializers.CharField()
    subject = serializers.CharField()
    state = serializers.CharField()
    step = serializers.CharField(allow_null=True)
    progress = serializers.FloatField(allow_null=True)
    reason = serializers.CharField()
    actor = serializers.CharField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class DeliveryRow(serializers.Serializer[Any]):
    webhook = serializers.CharField(help_text="its name, or its host")
    state = serializers.CharField(help_text="waiting, sent, failed")
    tries = serializers.IntegerField()
    answer = serializers.CharField(help_text="what it answered last, or why it did not")
    at = serializers.DateTimeField(allow_null=True)


class NoticeRow(serializers.Serializer[Any]):
    id = serializers.CharField()
    at = serializers.DateTimeField()
    kind = serializers.CharField()
    subject = serializers.CharField()
    message = serializers.CharField()
    command = serializers.CharField(help_text="what would change it or show more; empty where nothing would")
    detail = serializers.DictField()
    over_at = serializers.DateTimeField(allow_null=True, help_text="null while it is so")
    due_at = serializers.DateTimeField(
        allow_null=True, help_text="when it may be told: the same of the same once an hour; null: it was over before"
    )
    told_at = serializers.DateTimeField(allow_null=True)
    deliveries = DeliveryRow(many=True)


class TestedRow(serializers.Serializer[Any]):
    webhook = serializers.CharField()
    format = serializers.CharField()
    good = serializers.BooleanField()
    answer = serializers.CharField()
    ms = serializers.IntegerField()


class ReasonRow(serializers.Serializer[Any]):
    code = serializers.CharField()
    sentence = serializers.CharField()
    command = serializers.CharField(help_text="what would change it or show more; empty where nothing would")


class Answer(ReasonRow):
    noun = serializers.CharField()
    ref = serializers.CharField()
    reasons = ReasonRow(many=True)


class Settings(GenericViewSet[Any]):
    """The cluster's settings. Each save is a version, in force within seconds."""

    serializer_class = SettingsShown
    pagination_class = None
    lookup_field = "version"
    lookup_value_regex = "[0-9]+"

    @extend_schema(responses=SettingsShown)
    def list(self, request: Request) -> Response:
        """What is in force."""
        return _shown()

    @extend_schema(request=SettingsChange, responses=SettingsShown)
    def create(self, request: Request) -> Response:
        """A new version."""
        asked = SettingsChange(data=request.data)
        asked.is_valid(raise_exception=True)
        settings.save(**asked.validated_data, actor=_actor(request))
        return _shown()

    @extend_schema(responses=RevisionRow(many=True))
    @action(detail=False, methods=["get"])
    def history(self, request: Request) -> Response:
        return Response(RevisionRow(selectors.revisions(_LIMIT), many=True).data)

    @extend_schema(parameters=[_VERSION], request=None, responses=SettingsShown)
    @action(detail=True, methods=["post"])
    def rollback(self, request: Request, version: str) -> Response:
        """That version's document, as a new version."""
        settings.rollback(version=int(version), actor=_actor(request))
        return _shown()


class Audit(GenericViewSet[Any]):
    """Who changed what, newest first."""

    serializer_class = AuditRow

    @extend_schema(
        responses=AuditRow(many=True),
        parameters=[
            OpenApiParameter("actor", str),
            OpenApiParameter("action", str, description="a beginning, like node."),
            OpenApiParameter("subject", str),
        ],
    )
    def list(self, request: Request) -> Response:
        asked = {k: request.query_params.get(k) for k in ("actor", "action", "subject")}
        rows = self.paginate_queryset(selectors.audit(limit=_LIMIT, **asked))
        return self.get_paginated_response(AuditRow(rows, many=True).data)


class Jobs(GenericViewSet[Any]):
    """Long work, newest first."""

    serializer_class = JobRow

    @extend_schema(responses=JobRow(many=True), operation_id="jobs_list")
    def list(self, request: Request) -> Response:
        rows = self.paginate_queryset(selectors.jobs(_LIMIT))
        return self.get_paginated_response(JobRow(rows, many=True).data)


class Notices(GenericViewSet[Any]):
    """What people were to be told of without having asked, newest first."""

    serializer_class = NoticeRow

    @extend_schema(
        responses=NoticeRow(many=True),
        parameters=[
            OpenApiParameter("kind", str, description=", ".join(KINDS)),
            OpenApiParameter("standing", bool, description="only what is so still"),
        ],
    )
    def list(self, request: Request) -> Response:
        standing = request.query_params.get("standing", "").lower() in ("1", "true", "yes")
        kind = request.query_params.get("kind")
        rows = self.paginate_queryset(selectors.notices(limit=_LIMIT, kind=kind, standing=standing))
        return self.get_paginated_response(NoticeRow(rows, many=True).data)

    @extend_schema(request=None, responses=TestedRow(many=True))
    @action(detail=False, methods=["post"], pagination_class=None)
    def test(self, request: Request) -> Response:
        """A test event to every webhook now, and how each answered."""
        return Response(TestedRow(notifying.try_out(), many=True).data)


class Why(GenericViewSet[Any]):
    """Why something is so: one sentence, what it rests on, and what would change it."""

    serializer_class = Answer
    pagination_class = None

    @extend_schema(
        responses=Answer,
        parameters=[
            OpenApiParameter("of", str, required=True, description="a request, key, model, replica or node"),
            OpenApiParameter("noun", str, description="what it is, where a name could be several"),
            OpenApiParameter("model", str, description="of a key: would it be let through to this model now?"),
        ],
    )
    def list(self, request: Request) -> Response:
        of = request.query_params.get("of", "")
        if not of:
            raise Invalid("of_what", "say of what: /api/v1/why?of=req_…")
        asked = {name: request.query_params.get(name) or None for name in ("noun", "model")}
        return Response(Answer(why.why(of, **asked)).data)


def _shown() -> Response:
    version, document = settings.current()
    return Response({"version": version, "document": document, "in_force": core.get(document, "")})


def _actor(request: Request) -> str:
    return f"{getattr(request.user, 'email', 'anonymous')} (API)"


routes = [
    ("settings", Settings, "settings"),
    ("audit", Audit, "audit"),
    ("jobs", Jobs, "job"),
    ("notices", Notices, "notice"),
    ("why", Why, "why"),
]
