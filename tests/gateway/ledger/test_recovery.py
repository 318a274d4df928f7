"""An edge's ledger and a Redis that loses the end of what it was told, or all of it, or only its answers: when both are
through with it, everything counts once."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
import redis

from gateway.core.ledger.account import Account, Record, pack
from gateway.edge.ledger.ledger import Ledger
from llmgw import metrics
from tests.gateway.ledger.script import seed

ACCOUNTS = (
    Account("project:p", 100_000, 10_000_000, 10_000, 10**12, "total"),
    Account("key:k", -1, 10_000_000, -1, 10**12, "total"),
)


@dataclass
class Truth:
    """What was admitted and not settled yet, and what settled requests used."""

    live: dict[str, Record] = field(default_factory=dict)
    tokens: int = 0
    money: int = 0


@contextlib.asynccontextmanager
async def ledgers(url: str, count: int) -> AsyncIterator[list[Ledger]]:
    found = [Ledger(url, f"edge-{n}", metrics.Figures()) for n in range(count)]
    tasks = [asyncio.create_task(one.run()) for one in found]
    await asyncio.sleep(0.05)
    yield found
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def kept(store: redis.Redis) -> dict[bytes, bytes]:
    return {key: store.dump(key) for key in store.scan_iter("llmgw:ledger:*")}


def put_back(store: redis.Redis, before: dict[bytes, bytes]) -> None:
    """An older state, as after a restart; nobody's connection needs to see it."""
    with store.pipeline() as pipe:
        pipe.flushdb()
        for key, value in before.items():
            pipe.restore(key, 0, value)
        pipe.execute()


def cut(store: redis.Redis) -> None:
    own = store.client_id()
    for client in store.client_list():
        if int(client["id"]) != own and client["db"] == "13":
            with contextlib.suppress(redis.ResponseError):
                store.client_kill_filter(_id=client["id"])


async def work(ledger: Ledger, draw: random.Random, truth: Truth, steps: int, name: str) -> None:
    mine: list[str] = []
    for n in range(steps):
        if mine and draw.random() < 0.45:
            id = mine.pop(draw.randrange(len(mine)))
            record = truth.live.pop(id)
            tokens, money = draw.randint(0, record.tokens), draw.randint(0, record.money)
            truth.tokens += tokens
            truth.money += money
            ledger.settle(id, pack(record), tokens, money, 100)
        else:
            id, record = f"{name}-{n}", Record(draw.randint(0, 50), draw.randint(0, 1000), ACCOUNTS)
            result = await ledger.reserve(id, [pack(record)])
            if result is None or result[0] == 0:  # away, or a budget of which nothing is known: by itself, as it may
                ledger.force(id, pack(record))
            truth.live[id] = record
            mine.append(id)
        if draw.random() < 0.3:
            await asyncio.sleep(draw.uniform(0, 0.01))


def check(store: redis.Redis, truth: Truth) -> None:
    held_tokens = sum(r.tokens for r in truth.live.values())
    held_money = sum(r.money for r in truth.live.values())
    for account in ACCOUNTS:
        at_once, held, used = store.hmget(f"llmgw:ledger:a:{account.name}", "c", "h", "t")
        assert (int(held), int(used)) == (held_tokens, truth.tokens)
        if account.concurrent >= 0:
            assert int(at_once) == len(truth.live)
        spent, reserved = store.hmget(f"llmgw:ledger:m:{account.name}:total", "s", "h")
        assert (int(spent), int(reserved)) == (truth.money, held_money)


@pytest.mark.parametrize("how", ["loses the end", "loses all", "loses answers", "forgets unseen"])
async def test_everything_counts_once(store: redis.Redis, redis_url: str, how: str) -> None:
    draw = random.Random(how)
    for account in ACCOUNTS:
        seed(store, account.name, "total")
    truth = Truth()
    async with ledgers(f"{redis_url}?db=13", 2) as both:
        for round in range(1 if how == "forgets unseen" else 4):  # that an idle edge notices takes its renewal
            running = [asyncio.create_task(work(one, draw, truth, 40, f"r{round}.{n}")) for n, one in enumerate(both)]
            await asyncio.sleep(draw.uniform(0.01, 0.05))
            before = kept(store)
            await asyncio.sleep(draw.uniform(0.01, 0.1))
            if how == "loses answers":
                cut(store)
            elif how == "loses the end":
                put_back(store, before)
                cut(store)
            elif how == "forgets unseen":
                put_back(store, before)
            elif round == 0:  # what is older than an edge remembers comes from the rows: see test_seeding
                put_back(store, {})
                cut(store)
            await asyncio.gather(*running)
            deadline = asyncio.get_running_loop().time() + 5
            while True:
                try:
                    check(store, truth)
                    break
                except (AssertionError, TypeError):
                    if asyncio.get_running_loop().time() > deadline:
                        raise
                    await asyncio.sleep(0.02)
