"""Driving one replica with real requests, level by level, until it no longer holds what is promised."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from agent.engine import MetricNames
from agent.engines import ENGINES
from catalog.core.slo import Slo
from fleet.core import capacity as core
from fleet.core.capacity import Answered, Capacity, Level

SILENT_S = 60.0
"""Without a byte for this long a request has failed."""
_WORDS = ("the", "river", "carried", "small", "boats", "past", "grey", "stones", "while", "someone", "counted", "lamps")


@dataclass(frozen=True, slots=True)
class Target:
    """One replica. `key` is its engine's own, and shown nowhere."""

    replica: str
    model: str
    url: str
    engine: str
    key: str


@dataclass(frozen=True, slots=True)
class Shape:
    """Of the requests: words in, tokens out, and seconds for each level."""

    words: int = 200
    tokens: int = 64
    seconds: float = 10.0
    most: int = 256


@dataclass(frozen=True, slots=True)
class Measured:
    capacity: Capacity
    told: bool
    """The engine publishes its metrics; else it was measured from the outside only."""


def measure(
    target: Target,
    slo: Slo,
    shape: Shape,
    told: Callable[[Level], None] = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Measured:
    """Climbs until the promise is missed; `told` hears each level as it ends. Once `stopped` says so nothing more is
    sent, and the level that was under way does not count."""
    return asyncio.run(_climb(target, slo, shape, told, stopped))


async def _climb(
    target: Target, slo: Slo, shape: Shape, told: Callable[[Level], None], stopped: Callable[[], bool]
) -> Measured:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=shape.most)
    headers = {"Authorization": f"Bearer {target.key}"}
    levels: list[Level] = []
    metrics = False
    async with httpx.AsyncClient(base_url=target.url, headers=headers, limits=limits, timeout=SILENT_S) as client:
        await _one(client, target.model, shape, [], [])  # warm: the first request pays for what is loaded late
        for concurrency in core.ladder(shape.most):
            answered: list[Answered] = []
            failed: list[str] = []
            began = time.perf_counter()
            until = began + shape.seconds
            workers = [
                _worker(client, target.model, shape, until, answered, failed, stopped) for _ in range(concurrency)
            ]
            gauges = asyncio.create_task(_gauges(client, target.engine, shape.seconds))
            await asyncio.gather(*workers)
            if stopped():
                gauges.cancel()
                break
            waiting, kv, said = await gauges
            metrics = metrics or said
            took = time.perf_counter() - began
            found = core.level(concurrency, answered, len(failed), took, slo, waiting, kv)
            levels.append(found)
            told(found)
            if not found.held:
                break
    return Measured(core.capacity(levels), metrics)


async def _worker(
    client: httpx.AsyncClient,
    model: str,
    shape: Shape,
    until: float,
    answered: list[Answered],
    failed: list[str],
    stopped: Callable[[], bool],
) -> None:
    """One request after the other, at least one; what has begun is waited for."""
    while True:
        await _one(client, model, shape, answered, failed)
        if time.perf_counter() >= until or len(failed) > 3 or stopped():
            return


async def _one(
    client: httpx.AsyncClient,
    model: str,
    shape: Shape,
    answered: list[Answered],
    failed: list[str],
    *,
    again: bool = True,
) -> None:
    # No two prompts begin alike: a cache that answers is not what is measured.
    words = [secrets.token_hex(4), *(_WORDS[n % len(_WORDS)] for n in range(shape.words))]
    body = {
        "model": model,
        "messages": [{"role": "user", "content": " ".join(words)}],
        "max_tokens": shape.tokens,
        "stream": True,
        "temperature": 1.0,
        "ignore_eos": True,
    }
    began = time.perf_counter()
    times: list[float] = []
    try:
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code != 200:
                failed.append(f"status {response.status_code}")
                return
            async for line in response.aiter_lines():
                if line.startswith("data: {") and _has_content(line[6:]):
                    times.append(time.perf_counter())
    except httpx.RemoteProtocolError as e:
        # An engine closes a kept connection after so many requests: what was just sent on it was not begun.
        if again and not times:
            await _one(client, model, shape, answered, failed, again=False)
        else:
            failed.append(type(e).__name__)
        return
    except httpx.HTTPError as e:
        failed.append(type(e).__name__)
        return
    if not times:
        failed.append("no token came")
        return
    tpot = (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else None
    answered.append(Answered(times[0] - began, tpot, len(times)))


def _has_content(data: str) -> bool:
    try:
        delta = (json.loads(data).get("choices") or [{}])[0].get("delta") or {}
    except (ValueError, AttributeError):
        return False
    return bool(delta.get("content") or delta.get("reasoning_content"))


async def _gauges(client: httpx.AsyncClient, engine: str, seconds: float) -> tuple[int | None, float | None, bool]:
    """(requests that waited, share of the KV cache, whether the engine tells at all), in the middle of a level."""
    contract = ENGINES.get(engine)
    names = contract.metrics(None) if contract is not None else MetricNames()
    await asyncio.sleep(seconds / 2)
    try:
        answer = await client.get(names.path)
    except httpx.HTTPError:
        return None, None, False
    if answer.status_code != 200:
        return None, None, False
    waiting, kv = _gauge(answer.text, names.waiting), _gauge(answer.text, names.kv_cache_usage)
    return (None if waiting is None else round(waiting)), kv, waiting is not None or kv is not None


def _gauge(text: str, name: str | None) -> float | None:
    """The sum over its labels."""
    found = None
    for line in text.splitlines():
        if name and line.startswith((f"{name} ", f"{name}{{")):
            try:
                found = (found or 0.0) + float(line.rpartition(" ")[2])
            except ValueError:
                continue
    return found
