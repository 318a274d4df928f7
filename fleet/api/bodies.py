"""What requests carry."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request


def read(kind: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    """The request's body; raises `ValidationError`."""
    asked = kind(data=request.data)
    asked.is_valid(raise_exception=True)
    found: dict[str, Any] = asked.validated_data
    return found
