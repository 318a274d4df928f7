"""A model's schedule as a week of strips: for each day the stretches in which the same numbers hold. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo
from itertools import groupby

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from catalog.core.definition import Scaling
from catalog.core.scaling import clock
from fleet.core import schedule

HALF_HOURS = 48
_NAMES: tuple[str | Promise, ...] = (_("Mon"), _("Tue"), _("Wed"), _("Thu"), _("Fri"), _("Sat"), _("Sun"))


@dataclass(frozen=True, slots=True)
class Stretch:
    """`x` and `width` in half hours, as text for the drawing; `level` 0 to 4: how many replicas at least."""

    x: str
    width: str
    level: int
    words: str


@dataclass(frozen=True, slots=True)
class Day:
    name: str | Promise
    stretches: tuple[Stretch, ...]


def strips(scaling: Scaling, now: float, zone: tzinfo) -> tuple[Day, ...]:
    """Empty where there is no schedule."""
    if not scaling.schedule:
        return ()
    week = schedule.week(scaling, now, zone)
    most = max(1, *(b.min for day in week for b in day))
    return tuple(Day(name, _day(day, most)) for name, day in zip(_NAMES, week, strict=True))


def _day(day: list[schedule.Bounds], most: int) -> tuple[Stretch, ...]:
    found, at = [], 0
    for (least, high), group in groupby(day, key=lambda b: (b.min, b.max)):
        count = len(list(group))
        span = f"{clock(at * 30)}–{clock((at + count) * 30)}"
        number = str(least) if least == high else f"{least}–{high}"
        level = 0 if not least else max(1, round(4 * least / most))
        found.append(Stretch(str(at), str(count), level, f"{span}: {number}"))
        at += count
    return tuple(found)
