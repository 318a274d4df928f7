"""Use of the models as pages show it: sums over days and by model; what goes on now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import redis

from gateway import selectors, spending


@dataclass(frozen=True, slots=True)
class Used:
    """What was used of one model; `unknown` requests left no count of tokens. `cost` in nano-units."""

    model: str
    requests: int = 0
    prompt: int = 0
    completion: int = 0
    unknown: int = 0
    cached: int = 0
    cost: int = 0


def by_model(which: spending.Which) -> list[Used]:
    """One entry for each model that answered, the most money first, then the most tokens."""
    return [_used(row["model"], row) for row in spending.by(which, "model")]


def total(which: spending.Which) -> Used:
    return _used("", spending.total(which))


def _used(model: str, sums: dict[str, Any]) -> Used:
    return Used(
        model,
        sums["requests"],
        sums["prompt_tokens"],
        sums["completion_tokens"],
        sums["uncounted"],
        sums["cached_tokens"],
        sums["cost"],
    )


@dataclass(frozen=True, slots=True)
class Now:
    """What goes on now. None: no edge has reported within its five seconds, or Redis is away."""

    in_flight: int | None = None
    tokens_per_s: float | None = None
    models: dict[str, dict[str, Any]] | None = None


def now() -> Now:
    try:
        found = selectors.live()
    except redis.RedisError:
        return Now()
    return added(found) if found is not None else Now()


def added(live: dict[str, Any]) -> Now:
    """Pure: the sums of what the edges report, and each model's share."""
    names = {*live["models"], *live["tokens_per_s"]}
    models = {
        name: {
            "in_flight": live["models"].get(name, {}).get("in_flight", 0),
            "waiting": live["models"].get(name, {}).get("waiting", 0),
            "tokens_per_s": live["tokens_per_s"].get(name, 0.0),
        }
        for name in names
    }
    return Now(sum(m["in_flight"] for m in models.values()), sum(m["tokens_per_s"] for m in models.values()), models)
