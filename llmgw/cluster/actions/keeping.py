"""Forgetting what has been kept long enough, a bounded number of rows at a time: histories grow without end else."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import models

MOST = 5000
"""Rows in one go: the store's other writers wait that long."""


def forget_older(rows: models.Manager[Any] | models.QuerySet[Any], days: int, now: datetime) -> int:
    """Deletes the oldest of `rows` whose `at` is more than `days` ago; how many there were, `MOST` at most."""
    old = rows.filter(at__lt=now - timedelta(days=days)).order_by("at").values_list("pk", flat=True)[:MOST]
    return rows.filter(pk__in=list(old)).delete()[0]
