"""What this site's own runs have shown, for the planner and for people."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from agent.wire.shard import ShardState
from catalog import selectors as catalog
from catalog.core.definition import Definition
from fleet import models
from fleet.core import learned as core
from fleet.core import starting
from fleet.core.learned import Figure, Key, Known, Shown
from fleet.core.replica import State

_KEY = ("weights", "engine", "gpu_class", "gpus", "nodes", "context_length", "parallel")
_FIGURE = ("n", "mean", "spread", "least", "most", "last")
Kind = models.Learned.Kind


def figure_of(row: models.Learned) -> Figure:
    return Figure(*(getattr(row, name) for name in _FIGURE))


_last: tuple[list[tuple[Any, ...]], Shown] = ([], {})


def shown() -> Shown:
    """Of every kind of run, in one query; rows that read as they did last time give the same values again."""
    global _last
    rows = list(models.Learned.objects.filter(n__gt=0).values_list(*_KEY, "kind", "n", "most", "recent"))
    if rows != _last[0]:
        _last = rows, _read(rows)
    return _last[1]


def _read(rows: list[tuple[Any, ...]]) -> Shown:
    found: dict[Key, dict[str, dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
    for *words, kind, n, most, recent in rows:
        key = Key(*words)
        said = found[key.anywhere][key.gpu_class]
        match kind:
            case Kind.MEMORY:
                said["memory_bytes"] = int(most)
            case Kind.GPU_MEMORY:
                said |= {"card_bytes": int(most), "runs": n}
            case Kind.START:
                said["start_s"] = core.usual_s(recent)
            case Kind.FETCH:
                said["fetch_s"] = core.usual_s(recent)
    return {key: {name: Known(**said) for name, said in classes.items()} for key, classes in found.items()}


def starts() -> dict[str, float]:
    """Seconds that a start of each model takes here, where one was seen."""
    return starting.starts(shown(), (definition for definition, _ in catalog.wanted()))


def of(key: Key) -> dict[str, Figure]:
    """By kind, of what was measured of such runs."""
    rows = models.Learned.objects.filter(**{name: getattr(key, name) for name in _KEY})
    return {row.kind: figure_of(row) for row in rows}


def fetches(found: Shown, definitions: Mapping[str, Definition]) -> dict[int, float]:
    """By the row of each replica that is starting: seconds of bringing its weights, as long as that took, or usually
    takes where it is under way."""
    rows = models.Shard.objects.filter(replica__state__in=(State.STARTING, State.LOADING))
    seconds: dict[int, float] = defaultdict(float)
    for replica, model, observed, took in rows.values_list("replica_id", "replica__model", "observed", "took"):
        took_s = took.get("fetch_s") or 0.0
        if observed == ShardState.FETCHING and model in definitions:
            took_s = starting.fetch_s(found, definitions[model]) or 0.0
        seconds[replica] = max(seconds[replica], took_s)
    return seconds


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
