"""An edge whose keys and projects are limited, and what its ledger holds."""

from __future__ import annotations

from typing import Any

import redis

from gateway.core import snapshot
from gateway.core.ledger import account, keys
from gateway.core.snapshot import LevelLimits
from llmgw.keys import key_hash
from llmgw.price import Dated, Price
from tenancy.core.limits import Limits
from tests.gateway.edges import KEY, MODEL, EdgeProcess

PERIOD = "2026-11"
UNIT = 1_000_000_000


def level(kind: str, **limits: Any) -> LevelLimits:
    """`kind`'s limits, with one id a kind."""
    ids = {"organisation": "o1", "team": "t1", "project": "p1", "key": "k1"}
    found = Limits(**limits)
    period = PERIOD if found.budget is not None else ""
    return LevelLimits(kind, ids[kind], found, period, 1_764_547_200.0 if period else 0.0)


def tenancy(*levels: LevelLimits, **scope: Any) -> snapshot.Tenancy:
    """The usual key, with these limits at its levels."""
    own = next((one for one in levels if one.level == "key"), None)
    above = tuple(one for one in levels if one.level != "key")
    return snapshot.Tenancy(
        keys={key_hash(KEY): snapshot.KeyEntry("k1", "test", "p1", limits=own)},
        projects={"p1": snapshot.Scope("o1", "t1", "p1", limits=above, **scope)},
    )


def model(name: str = MODEL, prompt: int = 0, completion: int = 0, **fields: Any) -> snapshot.ModelEntry:
    """A serving one; prices in micro-units per 1 000 tokens."""
    prices = (Dated(Price(prompt, completion)),)
    aliases = ("helper",) if name == MODEL else ()
    kinds = ("chat", "completions", "embeddings")
    return snapshot.ModelEntry(name, aliases, "serving", kinds=kinds, prices=prices, **fields)


def serve(
    edge: EdgeProcess,
    endpoints: list[snapshot.Endpoint],
    levels: list[LevelLimits],
    *models: snapshot.ModelEntry,
    spent: int | None = 0,
    policies: dict[str, Any] | None = None,
    **scope: Any,
) -> None:
    """Publish, on an empty ledger; budgets are seeded with `spent`, where it is not None."""
    with edge.client() as client:
        clear(client)
        for one in levels:
            if one.limits.budget is not None and spent is not None:
                client.hset(purse(one), mapping={"s": spent, "k": 1})
    edge.publish(
        tenancy=tenancy(*levels, **scope),
        catalog=snapshot.Catalog(models={one.name: one for one in models or (model(),)}),
        endpoints=snapshot.Endpoints(endpoints=tuple(endpoints)),
        policies=snapshot.Policies(**(policies or {})),
    )


def clear(client: redis.Redis) -> None:
    """All but what edges hold and have counted."""
    for kind in "amuw":
        for key in client.scan_iter(f"{keys.ROOT}{kind}:*"):
            client.delete(key)


def purse(one: LevelLimits) -> str:
    return keys.purse(account.name(one.level, one.id), one.period)


def money(edge: EdgeProcess, one: LevelLimits) -> tuple[int, int]:
    """Spent and held of a budget, in nano-units."""
    with edge.client() as client:
        spent, held = client.hmget(purse(one), "s", "h")
    return int(spent or 0), int(held or 0)


def held(edge: EdgeProcess, one: LevelLimits) -> tuple[int, int]:
    """Requests at once, and tokens held."""
    with edge.client() as client:
        at_once, tokens = client.hmget(keys.account(account.name(one.level, one.id)), "c", "h")
    return int(at_once or 0), int(tokens or 0)
