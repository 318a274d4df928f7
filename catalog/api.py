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
from catalog.actions import models, prices
from tenancy.api.auth import actor_of

_NAME = OpenApiParameter("name", str, OpenApiParameter.PATH, description="the model, by name or alias")
_FORCE = OpenApiParameter("force", bool, description="true: although other models fall back to it")
_CHECK = OpenApiParameter("source_check", bool, description="false: do not look whether the weights are there")


class Key(serializers.Serializer[Any]):
    endpoint = serializers.CharField(help_text="external:MODEL#NUMBER")
    code = serializers.CharField(help_text="empty, or external_key_refused, _unreadable, _resting, _loose")
    sentence = serializers.CharField()
    since = serializers.FloatField(allow_null=True, help_text="Unix seconds")
    usable = serializers.BooleanField()


class ModelRow(serializers.Serializer[Any]):
    name = serializers.CharField()
    state = serializers.CharField(help_text="stopped, not running, invalid, or how its replicas stand")
    reason = serializers.CharField()
    ready = serializers.IntegerField(allow_null=True, help_text="replicas that serve; null: not known")
    wanted = serializers.IntegerField(allow_null=True)
    external = serializers.BooleanField(help_text="served outside the cluster: its prompts leave it")
    keys = Key(many=True, help_text="of an external model, as the edges tell")
    fallbacks = serializers.ListField(child=serializers.CharField())
    aliases = serializers.ListField(child=serializers.CharField())
    kinds = serializers.ListField(child=serializers.CharField())
    context_length = serializers.IntegerField(allow_null=True)
    source = serializers.CharField()  # type: ignore[assignment]  # the name is the definition's
    origin = serializers.ChoiceField(choices=[selectors.STORED, selectors.DECLARED])
    stopped = serializers.BooleanField()
    created_at = serializers.DateTimeField(allow_null=True)
    changed_at = serializers.DateTimeField(allow_null=True)


_MICRO = "micro-units: 2500 is 0.0025"


class PriceFigures(serializers.Serializer[Any]):
    prompt_per_1k = serializers.IntegerField(help_text=_MICRO)
    cached_per_1k = serializers.IntegerField(allow_null=True, help_text="null: as other prompt tokens")
    completion_per_1k = serializers.IntegerField()
    per_image = serializers.IntegerField()
    per_mesh = serializers.IntegerField()


class PriceRow(PriceFigures):
    model = serializers.CharField()
    own = serializers.BooleanField(help_text="false: the cluster's default price")
    since = serializers.DateTimeField(allow_null=True, help_text="null: from the beginning")


class PriceEntry(PriceFigures):
    since = serializers.DateTimeField(allow_null=True, help_text="null: from the beginning")
    default = serializers.BooleanField(help_text="the cluster's default price from then on")
    actor = serializers.CharField()
    note = serializers.CharField()
    entered_at = serializers.DateTimeField(allow_null=True)


class NewPrice(serializers.Serializer[Any]):
    """What is not named stays as it is."""

    prompt_per_1k = serializers.IntegerField(required=False, help_text=_MICRO)
    cached_per_1k = serializers.IntegerField(required=False, allow_null=True)
    completion_per_1k = serializers.IntegerField(required=False)
    per_image = serializers.IntegerField(required=False)
    per_mesh = serializers.IntegerField(required=False)
    default = serializers.BooleanField(default=False, help_text="back to the cluster's default price")
    since = serializers.CharField(default="", allow_blank=True, help_text="a day or a moment; empty: now")
    note = serializers.CharField(default="", allow_blank=True, max_length=200)


class ModelDetail(ModelRow):
    problems = serializers.ListField(child=serializers.CharField())
    price = PriceRow(help_text="in force now")
    definition = serializers.DictField(allow_null=True, help_text="as it is written in YAML")


@extend_schema_view(
    retrieve=extend_schema(parameters=[_NAME], responses=ModelDetail),
    destroy=extend_schema(parameters=[_NAME, _FORCE]),
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
        force = request.query_params.get("force", "").lower() in ("1", "true")
        models.remove(name=name, actor=actor_of(request), force=force)
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

    @extend_schema(
        parameters=[_NAME], responses=PriceEntry(many=True), operation_id="models_prices_list", filters=False
    )
    @action(detail=True, methods=["get"], pagination_class=None)
    def prices(self, request: Request, name: str) -> Response:
        """Every entry that was made of its price, the latest to begin first."""
        return Response(PriceEntry(selectors.price_history(selectors.entry(name)), many=True).data)

    @extend_schema(parameters=[_NAME], request=NewPrice, responses={201: ModelDetail})
    @prices.mapping.post
    def enter_price(self, request: Request, name: str) -> Response:
        """A new price. Earlier entries stay, and count until this one begins."""
        body = NewPrice(data=request.data)
        body.is_valid(raise_exception=True)
        asked: dict[str, Any] = body.validated_data
        found = selectors.entry(name)
        when, default = {n: asked.pop(n) for n in ("since", "note")}, asked.pop("default")
        price = prices.laid_over(selectors.price_now(found), asked, default)
        prices.enter(model=found.name, price=price, actor=actor_of(request), **when)
        return _answer(found.name, 201)


def _answer(name: str, status: int = 200) -> Response:
    return Response(ModelDetail(selectors.detail(selectors.entry(name))).data, status=status)


def _checked(request: Request) -> bool:
    return request.query_params.get("source_check", "true").lower() not in ("0", "false")


routes = [("models", Models, "model")]
