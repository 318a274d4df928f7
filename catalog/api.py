"""`/api/v1/models`: the catalog."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from catalog import selectors
from catalog.actions import models
from tenancy.api.auth import actor_of

_NAME = OpenApiParameter("name", str, OpenApiParameter.PATH, description="the model, by name or alias")
_CHECK = OpenApiParameter("source_check", bool, description="false: do not look whether the weights are there")


class ModelRow(serializers.Serializer[Any]):
    name = serializers.CharField()
    state = serializers.CharField(help_text="stopped, not running, invalid, or how its replicas stand")
    reason = serializers.CharField()
    ready = serializers.IntegerField(allow_null=True, help_text="replicas that serve; null: not known")
    wanted = serializers.IntegerField(allow_null=True)
    aliases = serializers.ListField(child=serializers.CharField())
    kinds = serializers.ListField(child=serializers.CharField())
    context_length = serializers.IntegerField(allow_null=True)
    source = serializers.CharField()  # type: ignore[assignment]  # the name is the definition's
    origin = serializers.ChoiceField(choices=[selectors.STORED, selectors.DECLARED])
    stopped = serializers.BooleanField()
    created_at = serializers.DateTimeField(allow_null=True)
    changed_at = serializers.DateTimeField(allow_null=True)


class ModelDetail(ModelRow):
    problems = serializers.ListField(child=serializers.CharField())
    definition = serializers.DictField(allow_null=True, help_text="as it is written in YAML")


@extend_schema_view(
    retrieve=extend_schema(parameters=[_NAME], responses=ModelDetail),
    destroy=extend_schema(parameters=[_NAME]),
)
class Models(GenericViewSet[Any]):
    """A definition is sent and given back in the shape of the YAML that `llmgw model add -f` takes."""

    serializer_class = ModelRow
    lookup_field = "name"
    lookup_value_regex = "[^/]+"

    @extend_schema(responses=ModelRow(many=True))
    def list(self, request: Request) -> Response:
        rows = self.paginate_queryset(selectors.models())
        return self.get_paginated_response(ModelRow(rows, many=True).data)

    def retrieve(self, request: Request, name: str) -> Response:
        return _answer(name)

    @extend_schema(parameters=[_CHECK], request=OpenApiTypes.OBJECT, responses={201: ModelDetail, 200: ModelDetail})
    def create(self, request: Request) -> Response:
        """201: added. 200: it was there, just so. 409: it is there, and differs (PUT changes it)."""
        done = models.add_all(raws=[request.data], actor=actor_of(request), check_sources=_checked(request))[0]
        return _answer(done.name, 201 if done.did == "added" else 200)

    @extend_schema(parameters=[_NAME, _CHECK], request=OpenApiTypes.OBJECT, responses=ModelDetail)
    def update(self, request: Request, name: str) -> Response:
        """The whole definition anew; its name is the one in the address."""
        raw = {**request.data, "name": selectors.entry(name).name} if isinstance(request.data, dict) else request.data
        done = models.change_all(raws=[raw], actor=actor_of(request), check_sources=_checked(request))[0]
        return _answer(done.name)

    def destroy(self, request: Request, name: str) -> Response:
        """Out of the catalog; its weights stay."""
        models.remove(name=name, actor=actor_of(request))
        return Response(status=204)

    @extend_schema(parameters=[_NAME], request=None, responses=ModelDetail)
    @action(detail=True, methods=["post"])
    def stop(self, request: Request, name: str) -> Response:
        """No replica is wanted until it is started."""
        return _answer(models.stop(name=name, actor=actor_of(request)))

    @extend_schema(parameters=[_NAME], request=None, responses=ModelDetail)
    @action(detail=True, methods=["post"])
    def start(self, request: Request, name: str) -> Response:
        return _answer(models.start(name=name, actor=actor_of(request)))


def _answer(name: str, status: int = 200) -> Response:
    return Response(ModelDetail(selectors.detail(selectors.entry(name))).data, status=status)


def _checked(request: Request) -> bool:
    return request.query_params.get("source_check", "true").lower() not in ("0", "false")


routes = [("models", Models, "model")]
