"""What every page's template is given."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest


def house(request: HttpRequest) -> dict[str, Any]:
    return {}
