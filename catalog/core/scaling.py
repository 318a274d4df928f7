"""How many replicas, as people write it: `scaling: {min: 1, max: 4, prewarm: 30m, schedule: […]}`. Pure."""

from __future__ import annotations

import re
from typing import Any

from catalog.core.definition import Scaling, Window
from catalog.core.fields import Fields
from llmgw.durations import written as duration

MOST = 1000
LONGEST_IDLE_S = 30 * 24 * 3600.0
LONGEST_PREWARM_S = 6 * 3600.0
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_SETS = {"weekdays": DAYS[:5], "weekends": DAYS[5:]}
_CLOCK = re.compile(r"([01][0-9]|2[0-4]|[0-9]):([0-5][0-9])", re.ASCII)
_DAY = 24 * 60


def read(fields: Fields) -> Scaling:
    """`scaling` of a definition. Without a word on it a model is kept and not run: nobody's request starts what
    nobody meant to run."""
    if fields.take("scaling") is None:
        return Scaling(0, 0)
    scaling = fields.table("scaling")
    least, most = _bounds(scaling)
    idle_timeout_s = scaling.duration("idle_timeout", 0.0, LONGEST_IDLE_S)
    prewarm_s = scaling.duration("prewarm", 0.0, LONGEST_PREWARM_S)
    weekly = scaling.flag("prewarm_weekly") or False
    schedule = tuple(_window(window, most) for window in scaling.tables("schedule"))
    scaling.done()
    on_demand = loads_on_demand(Scaling(least, most, schedule=schedule))
    if idle_timeout_s and not on_demand:
        scaling.problem("idle_timeout is for a model that loads on demand (min: 0 and max: 1 or more)")
    if weekly and not on_demand:
        scaling.problem("prewarm_weekly is for a model that loads on demand (min: 0 and max: 1 or more)")
    if prewarm_s and not schedule:
        scaling.problem("prewarm starts a window's replicas ahead, and there is no schedule")
    return Scaling(
        least, most, idle_timeout_s or Scaling().idle_timeout_s, schedule, prewarm_s=prewarm_s, prewarm_weekly=weekly
    )


def written(scaling: Scaling) -> dict[str, Any]:
    """Without what is a default anyway."""
    shape: dict[str, Any] = {"min": scaling.min, "max": scaling.max}
    if scaling.idle_timeout_s != Scaling().idle_timeout_s:
        shape["idle_timeout"] = duration(scaling.idle_timeout_s)
    if scaling.prewarm_s:
        shape["prewarm"] = duration(scaling.prewarm_s)
    if scaling.prewarm_weekly:
        shape["prewarm_weekly"] = True
    if scaling.schedule:
        shape["schedule"] = [_written_window(w) for w in scaling.schedule]
    return shape


def loads_on_demand(scaling: Scaling) -> bool:
    """At some hour, at least."""
    bounds = [(scaling.min, scaling.max)]
    bounds += [(w.min, scaling.max if w.max is None else w.max) for w in scaling.schedule]
    return any(least == 0 < most for least, most in bounds)


def clock(minute: int) -> str:
    """A minute of the day as people read it."""
    return f"{minute // 60:02}:{minute % 60:02}"


def days(window: Window) -> list[str]:
    """Its days in the shortest words; none for all of them."""
    left = [d for d in DAYS if d in window.days]
    if len(left) == len(DAYS):
        return []
    for name, members in _SETS.items():
        if all(d in left for d in members):
            left = [name, *(d for d in left if d not in members)]
    return left


def _bounds(fields: Fields) -> tuple[int, int]:
    """(min, max)."""
    least, most = fields.whole("min", None, 0, MOST), fields.whole("max", None, 0, MOST)
    if least is None:
        least = 1 if most is None else min(1, most)
    if most is None:
        most = least
    if most < least:
        fields.problem(f"max ({most}) is below min ({least})")
    return least, most


def _window(fields: Fields, own_max: int) -> Window:
    names = _days(fields)
    start, end = _minute(fields, "from"), _minute(fields, "to")
    least, most = fields.whole("min", None, 0, MOST), fields.whole("max", None, 0, MOST)
    fields.done()
    if least is None and most is None:
        fields.problem("a window says how many replicas: min, max or both")
    if least is None:
        least = 0 if most == 0 else 1
    if most is not None and most < least:
        fields.problem(f"max ({most}) is below min ({least})")
    elif most is None and own_max < least:
        fields.problem(f"min ({least}) is above the model's max ({own_max}): say max here too")
    return Window(names, start, end, least, most)


def _days(fields: Fields) -> tuple[str, ...]:
    """Without a word on them all days."""
    found: set[str] = set()
    for name in fields.texts("days"):
        if name in _SETS:
            found.update(_SETS[name])
        elif name in DAYS:
            found.add(name)
        else:
            fields.problem(f"days are {', '.join(DAYS)}, weekdays or weekends, and not {name!r}")
    return tuple(d for d in DAYS if d in found) or DAYS


def _minute(fields: Fields, key: str) -> int:
    value = fields.take(key)
    if value is None:
        fields.problem(f'{key} is missing: a time like {key}: "08:00"', "missing")
        return 0
    if isinstance(value, int) and not isinstance(value, bool) and 60 <= value < _DAY:
        return value  # YAML makes a number of 22:00 without quotes: just the minutes of the day
    match = _CLOCK.fullmatch(value) if isinstance(value, str) else None
    minute = int(match[1]) * 60 + int(match[2]) if match else -1
    if not 0 <= minute <= (_DAY if key == "to" else _DAY - 1):
        fields.problem(f'{key} must be a time of the day like "08:00" (in quotes), and is {value!r}')
        return 0
    return minute


def _written_window(window: Window) -> dict[str, Any]:
    shape: dict[str, Any] = {}
    if named := days(window):
        shape["days"] = named
    shape |= {"from": clock(window.start), "to": clock(window.end), "min": window.min}
    if window.max is not None:
        shape["max"] = window.max
    return shape
