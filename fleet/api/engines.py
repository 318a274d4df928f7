"""`/api/v1/engines`: what nodes run models with."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from fleet import selectors


class EngineRow(serializers.Serializer[Any]):
    node = serializers.CharField()
    engine = serializers.CharField()
    version = serializers.CharField(allow_null=True)
    build = serializers.CharField(allow_null=True)
    state = serializers.CharField(help_text="ready, installing, problem, absent")
    problem = serializers.CharField(allow_null=True)
    installing = serializers.CharField(allow_null=True, help_text="what its installation does now")
    wanted = serializers.CharField(allow_null=True, help_text="the version that the settings want there")
    chosen = serializers.CharField(help_text="the build that was chosen; auto: what the hardware runs")
    builds = serializers.ListField(child=serializers.CharField(), help_text="those that may be chosen")
    tested_with = serializers.CharField(allow_null=True, help_text="real, or a stand-in")


class Engines(GenericViewSet[Any]):
    """What each node has to run models with, and what is being installed."""

    serializer_class = EngineRow

    @extend_schema(parameters=[OpenApiParameter("engine", str, description="of this one only")], responses=EngineRow(many=True))  # fmt: skip # noqa: E501
    def list(self, request: Request) -> Response:
        rows = self.paginate_queryset(selectors.engines(request.query_params.get("engine")))
        return self.get_paginated_response(EngineRow(rows, many=True).data)
