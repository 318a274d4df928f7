"""Lines of a log, as two lists of the API give them."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request

LINES = OpenApiParameter("lines", int, description="how many of the newest lines (100)")


class LogLines(serializers.Serializer[Any]):
    lines = serializers.ListField(child=serializers.CharField())


def asked_lines(request: Request) -> int:
    """How many; raises `ValidationError`."""
    try:
        return int(request.query_params.get("lines", "100"))
    except ValueError:
        raise serializers.ValidationError({"lines": "must be a number"}) from None
