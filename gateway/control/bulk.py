"""Many rows in one statement, with what shall happen to those that are there.

PostgreSQL gets them as one JSON parameter: thousands of placeholders cost more to take apart than the rows to insert.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from django.db import connection

_AT_ONCE = 500
"""Rows: SQLite takes 32 766 values in a statement."""


def insert(table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], conflict: str) -> list[tuple[Any, ...]]:
    """Inserts `rows` in their order; `conflict` is what follows `ON CONFLICT`, with `RETURNING …` if its rows are
    wanted. In the caller's transaction."""
    named = ", ".join(f'"{name}"' for name in columns)
    found: list[tuple[Any, ...]] = []
    with connection.cursor() as cursor:
        for i in range(0, len(rows), _AT_ONCE):
            batch = rows[i : i + _AT_ONCE]
            if connection.vendor == "postgresql":
                values: list[Any] = [
                    msgspec.json.encode([dict(zip(columns, row, strict=True)) for row in batch]).decode()
                ]
                source = f"SELECT {named} FROM json_populate_recordset(NULL::{table}, %s)"  # noqa: S608 - names of ours
            else:
                values = [_plain(value) for row in batch for value in row]
                one = f"({', '.join(['%s'] * len(columns))})"
                source = f"VALUES {', '.join([one] * len(batch))}"
            cursor.execute(f"INSERT INTO {table} ({named}) {source} ON CONFLICT {conflict}", values)
            if "RETURNING" in conflict:
                found += cursor.fetchall()
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return connection.ops.adapt_datetimefield_value(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else value
