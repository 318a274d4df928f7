"""Usage rows as a CSV of any length: read and written a few thousand at a time."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import Any, TextIO

from django.db.models import QuerySet

from gateway.models import Usage
from gateway.selectors import SHOWN
from llmgw.cells import Cell, cell
from llmgw.money import written

_CHUNK = 2000


def csv_rows(rows: QuerySet[Usage]) -> Iterator[list[Cell]]:
    """The head, then a line a request. Money in decimals, times in ISO 8601, tags and hops as JSON."""
    yield list(SHOWN)
    for row in rows.values_list(*SHOWN).iterator(chunk_size=_CHUNK):
        yield [cell(_plain(name, value)) for name, value in zip(SHOWN, row, strict=True)]


def write(rows: QuerySet[Usage], out: TextIO) -> int:
    """How many requests were written."""
    writer, count = csv.writer(out), -1
    for row in csv_rows(rows):
        writer.writerow(row)
        count += 1
    return count


def _plain(name: str, value: Any) -> Cell:
    if value is None or name in ("stream", "estimated"):
        return None if value is None else int(value)
    match name:
        case "at":
            found: str = value.isoformat()
            return found
        case "cost":
            return written(value)
        case "tags" | "hops":
            return json.dumps(value, ensure_ascii=False) if value else ""
        case _:
            plain: Cell = value
            return plain
