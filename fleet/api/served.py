"""`/api/v1/models/…`: what is asked of a served model."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from catalog import selectors as catalog
from catalog.actions import life
from fleet import benches
from fleet.actions import bench, purge, resize, rollout
from fleet.api.benches import BenchAsked, BenchShown
from fleet.api.bodies import read
from llmgw.cluster.errors import NotFound
from tenancy.api.auth import actor_of

_NAME = OpenApiParameter("name", str, OpenApiParameter.PATH, description="the model, by name or alias")


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
        asked = read(ScaleAsked, request)
        done = life.scale(name=name, actor=actor_of(request), least=asked.get("min"), most=asked.get("max"))
        return Response(ScaledShown(done).data)

    @extend_schema(parameters=[_NAME], request=RestartAsked, responses=BegunShown)
    @action(detail=True, methods=["post"])
    def restart(self, request: Request, name: str) -> Response:
        """Its replicas are replaced, one at a time; 409 where no new one fits, not even in place."""
        done = rollout.restart(name=name, actor=actor_of(request), **read(RestartAsked, request))
        return Response(BegunShown(done).data)

    @extend_schema(parameters=[_NAME], request=ContextAsked, responses=BegunShown)
    @action(detail=True, methods=["post"])
    def context(self, request: Request, name: str) -> Response:
        """How many tokens one request may use; replicas follow, one at a time."""
        return Response(
            BegunShown(resize.context(name=name, actor=actor_of(request), **read(ContextAsked, request))).data
        )

    @extend_schema(parameters=[_NAME], request=GpusAsked, responses=BegunShown)
    @action(detail=True, methods=["post"])
    def gpus(self, request: Request, name: str) -> Response:
        """How many cards each replica uses; 409 where there is no room beside, until `in_place` is said."""
        return Response(BegunShown(resize.gpus(name=name, actor=actor_of(request), **read(GpusAsked, request))).data)

    @extend_schema(parameters=[_NAME], request=BenchAsked, responses={202: BenchShown})
    @action(detail=True, methods=["post"])
    def bench(self, request: Request, name: str) -> Response:
        """A worker finds what a replica carries; GET tells how far it is. 409 while another is measured."""
        asked = read(BenchAsked, request)
        slo, replica, save = (
            bench.promise(asked.pop("ttft"), asked.pop("tpot")),
            asked.pop("replica"),
            asked.pop("keep"),
        )
        begun = benches.begin(
            name=name, actor=actor_of(request), replica=replica, slo=slo, shape=bench.shaped(**asked), save=save
        )
        return Response(BenchShown(begun).data, status=202)

    @extend_schema(parameters=[_NAME], responses=BenchShown)
    @bench.mapping.get
    def bench_now(self, request: Request, name: str) -> Response:
        """The newest measurement of the last week, as far as it is; 404 without one."""
        return Response(BenchShown(_run(name)).data)

    @extend_schema(parameters=[_NAME], responses=BenchShown)
    @bench.mapping.delete
    def bench_stop(self, request: Request, name: str) -> Response:
        """Nothing more is sent, and nothing is kept."""
        found = _run(name)
        return Response(BenchShown(benches.stop(name=found.model) or found).data)

    @extend_schema(parameters=[_NAME], request=None, responses=PurgedShown)
    @action(detail=True, methods=["post"])
    def purge(self, request: Request, name: str) -> Response:
        """Out of the catalog, and what nodes fetched for it is deleted; DELETE keeps that."""
        return Response(PurgedShown(purge.remove(name=name, actor=actor_of(request))).data)


def _run(name: str) -> benches.Run:
    found = benches.of(catalog.entry(name).name)
    if found is None:
        raise NotFound("never_measured", f"{name} was not measured in the last week", f"llmgw bench {name}")
    return found
