"""`/api/v1/system`: the whole system stopped and started."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from fleet import selectors
from fleet.api.bodies import read
from llmgw.cluster.actions import serving
from tenancy.api.auth import actor_of


class SystemShown(serializers.Serializer[Any]):
    stopped = serializers.BooleanField()
    note = serializers.CharField()
    since = serializers.DateTimeField(allow_null=True, help_text="when it was last stopped or started")
    actor = serializers.CharField()
    replicas = serializers.IntegerField()
    ready = serializers.IntegerField()
    waits_for = serializers.ListField(child=serializers.CharField(), help_text="what is still up, or not yet back")
    left = serializers.ListField(
        child=serializers.CharField(), help_text="what is to end on machines that are not heard; it is not waited for"
    )


class StopAsked(serializers.Serializer[Any]):
    note = serializers.CharField(default="", allow_blank=True, max_length=200, help_text="why; told to clients")


class System(GenericViewSet[Any]):
    """Stopped, every model is taken down and every request answered 503; it survives restarts."""

    serializer_class = SystemShown
    pagination_class = None

    @extend_schema(responses=SystemShown)
    def list(self, request: Request) -> Response:
        """Does it serve, and what it waits for."""
        return Response(SystemShown(selectors.system()).data)

    @extend_schema(request=StopAsked, responses=SystemShown)
    @action(detail=False, methods=["post"])
    def stop(self, request: Request) -> Response:
        serving.stop(actor=actor_of(request), **read(StopAsked, request))
        return self.list(request)

    @extend_schema(request=None, responses=SystemShown)
    @action(detail=False, methods=["post"])
    def start(self, request: Request) -> Response:
        serving.start(actor=actor_of(request))
        return self.list(request)
