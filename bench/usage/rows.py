"""Usage rows as they come in a cluster: few projects, keys and models make most of the traffic, by day more than by
night, over six months. The same for the same seed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.core import ids

DAYS = 182
ORGANISATIONS, TEAMS, PROJECTS, KEYS, PEOPLE, MODELS = 5, 15, 60, 600, 400, 8
COLUMNS = (
    "request_id", "at", "endpoint", "model", "asked", "stream", "organisation", "team", "project", "key", "person",
    "edge", "session", "end_user", "tags", "outcome", "status", "code", "replica", "node", "route", "attempts",
    "served", "hops", "prompt_tokens", "completion_tokens", "cached_tokens", "estimated", "cost", "cache", "ttft_ms",
    "duration_ms",
)  # fmt: skip
_ENDS = (("ok", 200, ""),) * 95 + (
    ("client_left", 200, "client_left"),
    ("refused", 429, "rate_limited"),
    ("refused", 400, "invalid_request"),
    ("engine_failed", 502, "engine_failed"),
    ("timed_out", 504, "timed_out"),
)


def rows(count: int, until: datetime, seed: int = 1) -> Iterator[tuple[Any, ...]]:
    """`count` of them before `until`, in no order, as tuples of `COLUMNS`."""
    chance = random.Random(seed)
    pick = chance.random
    left = 0
    for n in range(count):
        if not left:  # somebody sits down, and asks a dozen times or so
            left = 1 + int(chance.expovariate(1 / 15))
            day, hour = pick() * DAYS, chance.triangular(0, 24, 14)
            at = (until - timedelta(days=int(day) + 1)).replace(hour=0, minute=0, second=0, microsecond=0)
            at += timedelta(hours=hour)
            key = int(KEYS * pick() ** 3)
            model = f"model-{int(MODELS * pick() ** 2)}"
            session = f"s-{n}" if pick() < 0.3 else ""
        left -= 1
        at += timedelta(seconds=chance.expovariate(1 / 60))
        project = key % PROJECTS
        team = project % TEAMS
        outcome, status, code = _ENDS[int(len(_ENDS) * pick())]
        answered = outcome == "ok"
        prompt, completion = int(chance.expovariate(1 / 900)) + 8, int(chance.expovariate(1 / 300)) + 1
        cached = int(prompt * pick()) if pick() < 0.6 else 0
        tags = (
            {"feature": f"f{int(30 * pick() ** 2)}", "env": "prod" if pick() < 0.8 else "dev"} if pick() < 0.4 else {}
        )
        yield (
            ids.request_id(int(at.timestamp() * 1000), (seed << 64) + n), at, "chat", model, model, True,
            f"org-{team % ORGANISATIONS}", f"team-{team}", f"project-{project}", f"key-{key}",
            f"person-{key % PEOPLE}", "edge-1", session,
            f"customer-{int(5000 * pick() ** 2)}" if pick() < 0.3 else "", json.dumps(tags), outcome, status, code,
            f"r-{key % 24:010x}" if outcome != "refused" else "", "node-1", "the soonest of 3 replicas", 1, "", "[]",
            prompt if outcome != "refused" else None, completion if answered else None, cached if answered else None,
            False, prompt * 400 + completion * 1600 if outcome != "refused" else None, "", 80.0 + 200 * pick(),
            900.0 + 4000 * pick(),
        )  # fmt: skip


def end() -> datetime:
    return datetime.now(UTC)
