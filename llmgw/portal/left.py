"""Limits beside what is used of them, as pages draw them: a row a level, a bar a figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import redis
from django.urls import reverse
from django.utils.functional import Promise

from gateway.control import left, parts
from gateway.core.snapshot import LevelLimits
from tenancy.models import Key, Level

Text = str | Promise


@dataclass(frozen=True, slots=True)
class Bar:
    """`used` None: nobody knows now."""

    used: int | None
    limit: int

    @property
    def left(self) -> int | None:
        return None if self.used is None else max(0, self.limit - self.used)

    @property
    def full(self) -> bool:
        return self.used is not None and self.used >= self.limit


@dataclass(frozen=True, slots=True)
class Row:
    """What one level allows; None where it does not say. Money in nano-units."""

    name: Text
    address: str
    requests: Bar | None
    tokens: Bar | None
    concurrent: Bar | None
    budget: Bar | None
    period: str
    until: datetime | None


def of(holders: Sequence[Level | Key], own: bool, more: Iterable[tuple[Text, LevelLimits]] = ()) -> list[Row]:
    """Of those that say anything, in their order. `own`: links lead to the pages for everybody, else to the
    administrators'. `more` are levels without a row of their own."""
    bounds = parts.bounds(holders)
    named: list[tuple[Text, str, LevelLimits]] = [
        (holder.name if isinstance(holder, Key) else holder.path, address(holder, own), bounds[holder.public_id])
        for holder in holders
        if holder.public_id in bounds
    ]
    named += [(name, "", level) for name, level in more if level.limits]
    try:
        used = left.used(level for _, _, level in named)
    except (redis.RedisError, OSError):  # limits are shown all the same, and what is used is not known
        used = {}
    return [_row(name, where, level, used.get((level.level, level.id))) for name, where, level in named]


def address(holder: Level | Key, own: bool) -> str:
    if isinstance(holder, Key):
        return reverse("portal:account-key", args=[holder.public_id])
    return reverse("portal:account-level" if own else "portal:tenants-one", args=[holder.public_id])


def _row(name: Text, where: str, level: LevelLimits, used: left.Used | None) -> Row:
    limits = level.limits
    return Row(
        name=name,
        address=where,
        requests=_bar(limits.rpm, None if used is None else used.requests),
        tokens=_bar(limits.tpm, None if used is None else used.tokens),
        concurrent=_bar(limits.concurrent, None if used is None else used.concurrent),
        budget=_bar(limits.budget, None if used is None else used.money),
        period=limits.period,
        until=datetime.fromtimestamp(level.until, UTC) if level.until else None,
    )


def _bar(limit: int | None, used: int | None) -> Bar | None:
    return None if limit is None else Bar(used, limit)
