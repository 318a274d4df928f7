"""`/api/v1/system`: the whole system stopped and started; `/api/v1/models/…`: what is asked of a served model."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from catalog.actions import life
from fleet import selectors
from fleet.actions import purge, resize, rollout
from llmgw.cluster.actions import serving
from tenancy.api.auth import actor_of

_NAME = OpenApiParameter("name", str, OpenApiParameter.PATH, description="the model, by name or alias")


class SystemShown(serializers.Serializer[Any]):
    stopped = serializers.BooleanField()
    note = serializers.CharField()
    since = serializers.DateTimeField(allow_null=True, help_text="when it was last stopped or started")
    actor = serializers.CharField()
    replicas = serializers.IntegerField()
    ready = serializers.IntegerField()
    waits_for = serializers.ListField(child=serializers.CharField(), help_text="what is still up, or not yet back")


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
        serving.stop(actor=actor_of(request), **_read(StopAsked, request))
        return self.list(request)

    @extend_schema(request=None, responses=SystemShown)
    @action(detail=False, methods=["post"])
    def start(self, request: Request) -> Response:
        serving.start(actor=actor_of(request))
        return self.list(request)


class ScaleAsked(serializers.Serializer[Any]):
    min = serializers.IntegerField(required=False, min_value=0, help_text="absent: as it is")
    max = serializers.IntegerField(required=False, min_value=0)


class ScaledShown(serializers.Serializer[Any]):
    name = serializers.CharField()
    min = serializers.IntegerField()
    max = serializers.IntegerField()
    started = serializers.BooleanField(help_text="it was stopped, and runs again")
    dropped = serializers.ListField(child=serializers.CharField(), help_text="of its scaling, what means nothing now")


class RestartAsked(serializers.Serializer[Any]):
    in_place = serializers.BooleanField(default=False, help_text="stop each first, also where there is room beside")


class ContextAsked(serializers.Serializer[Any]):
    tokens = serializers.IntegerField(help_text="prompt and answer of one request together")
    slots = serializers.IntegerField(required=False, allow_null=True, default=None, help_text="llama.cpp: at once")


class GpusAsked(serializers.Serializer[Any]):
    count = serializers.IntegerField(help_text="cards of one node that each replica uses")
    profile = serializers.CharField(required=False, allow_null=True, default=None)
    in_place = serializers.BooleanField(default=False, help_text="stop each replica first")


class PurgedShown(serializers.Serializer[Any]):
    name = serializers.CharField()
    deleted = serializers.ListField(child=serializers.CharField(), help_text="sources whose fetched weights go")
    kept = serializers.ListField(child=serializers.CharField(), help_text="that another model uses")
    nodes = serializers.ListField(child=serializers.CharField(), help_text="that have them, as far as they told")


class BegunShown(serializers.Serializer[Any]):
    name = serializers.CharField()
    replicas = serializers.IntegerField(help_text="that are replaced")
    in_place = serializers.BooleanField()
    sentence = serializers.CharField()


class ServedModels(GenericViewSet[Any]):
    """Changes of a model while it is served. Its definition's other parts: PUT."""

    serializer_class = ScaledShown
    pagination_class = None
    lookup_field = "name"
    lookup_value_regex = "[^/]+"

    @extend_schema(parameters=[_NAME], request=ScaleAsked, responses=ScaledShown)
    @action(detail=True, methods=["post"])
    def scale(self, request: Request, name: str) -> Response:
        """How many replicas; a stopped model starts."""
        asked = _read(ScaleAsked, request)
        done = life.scale(name=name, actor=actor_of(request), least=asked.get("min"), most=asked.get("max"))
        return Response(ScaledShown(done).data)

    @extend_schema(parameters=[_NAME], request=RestartAsked, responses=BegunShown)
    @action(detail=True, methods=["post"])
    def restart(self, request: Request, name: str) -> Response:
        """Its replicas are replaced, one at a time; 409 where no new one fits, not even in place."""
        done = rollout.restart(name=name, actor=actor_of(request), **_read(RestartAsked, request))
        return Response(BegunShown(done).data)

    @extend_schema(parameters=[_NAME], request=ContextAsked, responses=BegunShown)
    @action(detail=True, methods=["post"])
    def context(self, request: Request, name: str) -> Response:
        """How many tokens one request may use; replicas follow, one at a time."""
        return Response(
            BegunShown(resize.context(name=name, actor=actor_of(request), **_read(ContextAsked, request))).data
        )

    @extend_schema(parameters=[_NAME], request=GpusAsked, responses=BegunShown)
    @action(detail=True, methods=["post"])
    def gpus(self, request: Request, name: str) -> Response:
        """How many cards each replica uses; 409 where there is no room beside, until `in_place` is said."""
        return Response(BegunShown(resize.gpus(name=name, actor=actor_of(request), **_read(GpusAsked, request))).data)

    @extend_schema(parameters=[_NAME], request=None, responses=PurgedShown)
    @action(detail=True, methods=["post"])
    def purge(self, request: Request, name: str) -> Response:
        """Out of the catalog, and what nodes fetched for it is deleted; DELETE keeps that."""
        return Response(PurgedShown(purge.remove(name=name, actor=actor_of(request))).data)


def _read(kind: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    asked = kind(data=request.data)
    asked.is_valid(raise_exception=True)
    found: dict[str, Any] = asked.validated_data
    return found


routes = [("system", System, "system"), ("models", ServedModels, "served-model")]
