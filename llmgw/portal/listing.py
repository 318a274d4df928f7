"""Lists: sorted and filtered by the address, so that a view can be sent to somebody, and a page at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import F, QuerySet
from django.http import HttpRequest

from llmgw.fold import found_in, search_key

PER_PAGE = 100

Columns = Mapping[str, str]
"""What a table may be sorted by: a name for the address, and the field or key; with a dash, the most comes first."""


@dataclass(frozen=True, slots=True)
class Sorting:
    """How a table is sorted; `name` is empty where the address does not say."""

    columns: Columns
    name: str = ""
    descending: bool = False

    def link(self, name: str) -> str:
        """What `?sort=` is after a click on the head `name`: its own way first, then the other way round."""
        falls = not self.descending if name == self.name else self.columns[name].startswith("-")
        return f"-{name}" if falls else name


def sorting(request: HttpRequest, columns: Columns) -> Sorting:
    """As the address says it; nonsense is no order."""
    asked = request.GET.get("sort", "")
    name = asked.removeprefix("-")
    return Sorting(columns, name, asked.startswith("-")) if name in columns else Sorting(columns)


def ordered(rows: Iterable[Any], order: Sorting) -> list[Any]:
    """Rows that are mappings or objects, by the key; what is not known comes last, either way."""
    if not order.name:
        return list(rows)
    key = order.columns[order.name].removeprefix("-")
    known, unknown = [], []
    for row in rows:
        value = row[key] if isinstance(row, Mapping) else getattr(row, key)
        if value is None or value == "":
            unknown.append(row)
        else:
            known.append((search_key(value) if isinstance(value, str) else value, row))
    known.sort(key=lambda pair: pair[0], reverse=order.descending)
    return [row for _value, row in known] + unknown


def ordered_rows(rows: QuerySet[Any], order: Sorting) -> QuerySet[Any]:
    """The same of rows that the store sorts; equal ones keep an order, so that no page shows one twice."""
    if not order.name:
        return rows
    field = F(order.columns[order.name].removeprefix("-"))
    if order.descending:
        return rows.order_by(field.desc(nulls_last=True), "-pk")
    return rows.order_by(field.asc(nulls_last=True), "pk")


def page(request: HttpRequest, rows: QuerySet[Any] | Sequence[Any]) -> Page[Any]:
    """The page that `?page=` names; the nearest one for nonsense."""
    return Paginator(rows, PER_PAGE).get_page(request.GET.get("page"))


def matching(request: HttpRequest, rows: Sequence[Any], text: Callable[[Any], str]) -> list[Any]:
    """The rows that somebody means who typed `?q=`: with and without dots, accents and case."""
    query = request.GET.get("q", "").strip()
    return [row for row in rows if found_in(query, text(row))] if query else list(rows)
