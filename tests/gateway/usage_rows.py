"""Usage rows of all kinds for tests, without a gateway."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.core import ids
from gateway.models import Usage

BEGIN = datetime(2026, 11, 3, 9, tzinfo=UTC)


def row(at: datetime = BEGIN, seed: int = 0, **fields: Any) -> Usage:
    usual: dict[str, Any] = {
        "request_id": ids.request_id(int(at.timestamp() * 1000), seed),
        "endpoint": "chat",
        "model": "tiny",
        "asked": "tiny",
        "organisation": "o1",
        "team": "t1",
        "project": "p1",
        "key": "k1",
        "outcome": "ok",
        "status": 200,
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "cached_tokens": 2,
        "cost": 1_000_000_007,
    }
    return Usage(at=at, **{**usual, **fields})


def mixed(count: int, begin: datetime = BEGIN, minutes: int = 60 * 40, seed: int = 1) -> list[Usage]:
    """Of several projects, keys and models, with every kind of ending."""
    chance = random.Random(seed)
    found = []
    for n in range(count):
        at = begin + timedelta(minutes=chance.random() * minutes)
        project = chance.randrange(3)
        outcome = chance.choice(["ok", "ok", "ok", "client_left", "refused", "engine_failed", "timed_out", "unknown"])
        counted = outcome in ("ok", "client_left")
        found.append(
            row(
                at,
                n + 1,
                model=chance.choice(["tiny", "big"]),
                served=chance.choice(["", "", "spare"]),
                project=f"p{project}",
                team=f"t{project // 2}",
                key=chance.choice([f"k{project}a", f"k{project}b", ""]),
                person=chance.choice(["", "ada", "grace"]),
                endpoint=chance.choice(["chat", "embeddings"]),
                outcome=outcome,
                status=200 if outcome == "ok" else chance.choice([429, 502]),
                prompt_tokens=chance.randrange(5000) if counted else None,
                completion_tokens=chance.choice([chance.randrange(900), None]) if counted else None,
                cached_tokens=chance.choice([None, 3]),
                cost=chance.choice([None, 0, chance.randrange(10**10)]),
                saved=chance.choice([None, 7, 10**6]),
                saved_tokens=chance.choice([None, 11]),
                estimated=chance.random() < 0.1,
                cache=chance.choice(["", "", "hit", "similar", "miss"]),
                session=chance.choice(["", "s1", "s2"]),
                end_user=chance.choice(["", "u1", "u2"]),
                tags=chance.choice([{}, {"feature": "search"}, {"feature": "chat", "env.x": "prod"}]),
            )
        )
    return found
