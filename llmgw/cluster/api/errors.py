"""DRF's exception handler: our refusals as `{"error": {"code", "message", "command", "problems"}}`."""

from __future__ import annotations

from typing import Any

from rest_framework.response import Response
from rest_framework.views import exception_handler

from llmgw.cluster.errors import Refusal


def as_json(exc: Exception, context: dict[str, Any]) -> Response | None:
    if isinstance(exc, Refusal):
        body = {
            "code": exc.reason.code,
            "message": exc.reason.sentence,
            "command": exc.reason.command,
            "problems": [p.sentence for p in exc.problems],
        }
        return Response({"error": body}, status=exc.status)
    response = exception_handler(exc, context)
    if response is not None:
        code = getattr(exc, "default_code", "error")
        detail = response.data.get("detail") if isinstance(response.data, dict) else None
        body = {"code": code, "message": str(detail or "the request is not valid")}
        if detail is None:
            body["problems"] = response.data
        response.data = {"error": body}
    return response
