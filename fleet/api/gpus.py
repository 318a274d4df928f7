"""`/api/v1/gpus`: every card."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from fleet.selectors import machines


class GpuRow(serializers.Serializer[Any]):
    node = serializers.CharField()
    device = serializers.CharField(help_text="0, or 0/mig2 for a MIG instance")
    gpu_class = serializers.CharField()
    state = serializers.CharField(help_text="used, free, unusable")
    model = serializers.CharField(allow_null=True, help_text="what works on it")
    replica = serializers.CharField(allow_null=True)
    rank = serializers.IntegerField(allow_null=True)
    memory_bytes = serializers.IntegerField(allow_null=True)
    memory_used_bytes = serializers.IntegerField(allow_null=True)
    busy_percent = serializers.FloatField(allow_null=True, help_text="null: nobody knows, as of a MIG instance")
    busy_by = serializers.CharField(allow_null=True, help_text="sm: measured; draw: its draw against its limit")
    power_w = serializers.FloatField(allow_null=True)
    power_limit_w = serializers.FloatField(allow_null=True)
    temperature_c = serializers.IntegerField(allow_null=True)
    foreign_bytes = serializers.IntegerField(allow_null=True, help_text="held by programs that are not ours")
    problem = serializers.CharField(allow_null=True)
    unusable = serializers.CharField(allow_null=True, help_text="problem, foreign, or the state of its node")
    mig_profile = serializers.CharField(allow_null=True)
    rack = serializers.CharField(allow_null=True)
    node_state = serializers.CharField()


class Gpus(GenericViewSet[Any]):
    """Every card and MIG instance: what works on it, and what it does now."""

    serializer_class = GpuRow

    @extend_schema(
        parameters=[
            OpenApiParameter("node", str, description="of this node only"),
            OpenApiParameter("class", str, description="of this class only"),
            OpenApiParameter("model", str, description="only those on which this model works"),
            OpenApiParameter("rack", str, description="of this rack only"),
        ],
        responses=GpuRow(many=True),
    )
    def list(self, request: Request) -> Response:
        asked = request.query_params
        found = machines.gpus(asked.get("node"), asked.get("class"), asked.get("model"), asked.get("rack"))
        return self.get_paginated_response(GpuRow(self.paginate_queryset(found), many=True).data)
