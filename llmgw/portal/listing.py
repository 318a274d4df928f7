"""Lists: sorted and filtered by the address, so that a view can be sent to somebody, and a page at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import QuerySet
from django.http import HttpRequest

from llmgw.fold import found_in

PER_PAGE = 100


def page(request: HttpRequest, rows: QuerySet[Any] | Sequence[Any]) -> Page[Any]:
    """The page that `?page=` names; the nearest one for nonsense."""
    return Paginator(rows, PER_PAGE).get_page(request.GET.get("page"))


def matching(request: HttpRequest, rows: Sequence[Any], text: Callable[[Any], str]) -> list[Any]:
    """The rows that somebody means who typed `?q=`: with and without dots, accents and case."""
    query = request.GET.get("q", "").strip()
    return [row for row in rows if found_in(query, text(row))] if query else list(rows)
