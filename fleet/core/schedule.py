"""A model's week: which window of its schedule holds, when the next one opens, and between which numbers of replicas
it is then kept. Pure: the time zone and `now` (Unix seconds) come in.

A window is read by the clock on the wall: it opens when the clock first shows its beginning or later, and closes when
the clock last leaves its end. So one in an hour that comes twice lasts through both, and one that lies wholly in an
hour that is left out does not open that day.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo

from catalog.core.definition import Scaling, Window
from catalog.core.scaling import DAYS

_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many replicas at least and at most. `window`: the one that says so, None outside of all; `opens_at`: it is
    not open yet, and its replicas are started ahead."""

    min: int
    max: int
    window: Window | None = None
    opens_at: float | None = None


@dataclass(frozen=True, slots=True)
class Opening:
    """One time that a window is open, in Unix seconds."""

    window: Window
    opens: float
    closes: float


def bounds(scaling: Scaling, now: float, zone: tzinfo) -> Bounds:
    """What holds now: the first window that is open, else the model's own; a window that opens within `prewarm_s`
    raises both and lowers none."""
    if not scaling.schedule:
        return Bounds(scaling.min, scaling.max)
    found = _at(scaling, now, zone)
    if scaling.prewarm_s <= 0:
        return found
    for opens in sorted(o.opens for o in openings(scaling, now, now + scaling.prewarm_s, zone)):
        ahead = _at(scaling, opens, zone)
        if ahead.min > found.min and ahead.window is not None:
            found = Bounds(ahead.min, max(ahead.max, found.max), ahead.window, opens)
    return found


def openings(scaling: Scaling, after: float, until: float, zone: tzinfo) -> Iterator[Opening]:
    """Every time that a window opens later than `after` and not later than `until`, window by window."""
    first = _day(after, zone) - timedelta(days=1)
    days = (_day(until, zone) - first).days + 1
    for window in scaling.schedule:
        for day in (first + timedelta(days=n) for n in range(days + 1)):
            opening = _opening(window, day, zone)
            if opening is not None and after < opening.opens <= until:
                yield opening


def week(scaling: Scaling, now: float, zone: tzinfo) -> list[list[Bounds]]:
    """Seven days from monday of the week that `now` is in, each as 48 half hours: what holds at the start of each."""
    monday = _day(now, zone) - timedelta(days=_day(now, zone).weekday())
    return [
        [_at(scaling, _instant(zone, monday + timedelta(days=n), half * 30, False), zone) for half in range(48)]
        for n in range(7)
    ]


def _at(scaling: Scaling, now: float, zone: tzinfo) -> Bounds:
    today = _day(now, zone)
    # The day after too: where the clock goes back over midnight, tomorrow has begun once already.
    days = [today + timedelta(days=n) for n in (-1, 0, 1)]
    for window in scaling.schedule:
        for opening in (_opening(window, day, zone) for day in days):
            if opening is not None and opening.opens <= now < opening.closes:
                return Bounds(window.min, scaling.max if window.max is None else window.max, window)
    return Bounds(scaling.min, scaling.max)


def _opening(window: Window, day: date, zone: tzinfo) -> Opening | None:
    """The window as it opens on `day`, if it does."""
    if DAYS[day.weekday()] not in window.days:
        return None
    last = day if window.end > window.start else day + timedelta(days=1)
    opens, closes = _instant(zone, day, window.start, False), _instant(zone, last, window.end, True)
    return Opening(window, opens, closes) if closes > opens else None


@functools.lru_cache(maxsize=4096)
def _instant(zone: tzinfo, day: date, minute: int, last: bool) -> float:
    """When the clock first (or for the `last` time) shows that minute of the day, or one beyond it."""
    wall = datetime.combine(day, time()) + timedelta(minutes=minute)
    at = wall.replace(tzinfo=zone, fold=int(last)).timestamp()
    if _wall(at, zone) == wall:
        return at
    at = wall.replace(tzinfo=zone, fold=0).timestamp()  # left out by the clock: where it jumps over it
    while _wall(at - _MINUTE_S, zone) >= wall:
        at -= _MINUTE_S
    return at


def _wall(at: float, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(at, zone).replace(tzinfo=None, fold=0)


def _day(at: float, zone: tzinfo) -> date:
    return datetime.fromtimestamp(at, zone).date()
