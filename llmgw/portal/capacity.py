"""What there is of each class of cards, and which models hold cards while nobody asks: for the cluster page. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from fleet.core import devices
from fleet.core.devices import Capacity, Holding
from fleet.selectors.machines import Machines

IDLE = timedelta(minutes=5)
"""A model that was not asked for this long holds its cards for nobody."""

WHY: dict[str, str | Promise] = {
    "problem": _("broken"),
    "foreign": _("held by programs that are not ours"),
    "cordoned": _("node cordoned"),
    "draining": _("node draining"),
    "unsettled": _("node undecided"),
    "away": _("node away"),
    "lost": _("node lost"),
    "unknown": _("node not heard"),
}


@dataclass(frozen=True, slots=True)
class Class:
    """A row; `why` in words, with how many."""

    of: Capacity
    why: tuple[tuple[str | Promise, int], ...]


@dataclass(frozen=True, slots=True)
class Idle:
    """A model that holds cards and answers nothing. `kept`: its min is one or more, so nothing takes them from it.
    `asked` None: not within the hour."""

    holding: Holding
    kept: bool
    asked: datetime | None = None


def classes(found: Machines) -> tuple[Class, ...]:
    return tuple(
        Class(c, tuple((WHY[why], count) for why, count in c.why.items())) for c in devices.capacity(found.devices)
    )


def idle(
    found: Machines,
    now: Mapping[str, Mapping[str, Any]] | None,
    models: Iterable[Mapping[str, Any]],
    asked: Mapping[str, datetime],
    at: datetime,
) -> tuple[Idle, ...] | None:
    """None: no gateway tells what is being answered. `now` by model, `models` as the catalog has them, `asked`: when
    each was last asked for, of those that were within the hour."""
    if now is None:
        return None
    kept = {m["name"]: bool(m["wanted"]) and not m.get("on_demand") for m in models}
    return tuple(
        Idle(h, kept.get(h.model, True), last)
        for h in devices.held(found.devices)
        if not (now.get(h.model) or {}).get("in_flight")
        and not (now.get(h.model) or {}).get("waiting")
        and ((last := asked.get(h.model)) is None or at - last > IDLE)
    )
