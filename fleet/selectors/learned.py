"""What this site's own runs have shown, for the planner and for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleet import models
from fleet.core import learned as core
from fleet.core.learned import Figure, Key

_KEY = ("weights", "engine", "gpu_class", "gpus", "nodes", "context_length")
_FIGURE = ("n", "mean", "spread", "least", "most", "last")
Kind = models.Learned.Kind


def figure_of(row: models.Learned) -> Figure:
    return Figure(*(getattr(row, name) for name in _FIGURE))


def memory() -> Mapping[Key, int]:
    """Bytes that a rank of such a run has taken at most: what placement reserves where a profile says nothing."""
    rows = models.Learned.objects.filter(kind=Kind.MEMORY, n__gt=0).values_list(*_KEY, "most")
    return {Key(*row[:-1]): int(row[-1]) for row in rows}


def of(key: Key) -> dict[str, Figure]:
    """By kind, of what was measured of such runs."""
    rows = models.Learned.objects.filter(**{name: getattr(key, name) for name in _KEY})
    return {row.kind: figure_of(row) for row in rows}


def start_seconds(key: Key) -> float | None:
    """From the process's start to serving; None: it never ran here."""
    found = of(key).get(Kind.START)
    return found.mean if found is not None else None


def told(found: Mapping[str, Figure]) -> dict[str, Any]:
    """For people and programs: each figure with how sure it is."""
    return {
        kind: {
            "runs": figure.n,
            "mean": figure.mean,
            "deviation": figure.deviation,
            "least": figure.least,
            "most": figure.most,
            "last": figure.last,
            "told": core.told_s(figure) if kind in (Kind.START, Kind.FETCH) else core.told_bytes(figure),
        }
        for kind, figure in sorted(found.items())
    }
