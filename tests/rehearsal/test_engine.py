"""The pretended engine through its own port: what a gateway may expect of an engine, and each way of failing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent.core.last_words import Exit
from agent.core.proc import Mark
from agent.engine import MetricNames
from agent.engines import ENGINES
from agent.node.host import Identity
from agent.rehearsal import figures
from agent.rehearsal.engine import PretendedEngine
from agent.rehearsal.figures import Weights
from agent.wire.shard import Profile, ShardSpec, Source
from gateway.conform.judgement import Verdict
from gateway.conform.run import run as conform
from gateway.conform.target import Target
from tests.agent.node import free_port

KEY = "an engine's key"
QUICK = figures.speed(Weights(10**9, 5e8), "h200-140g", 1)


def spec(**profile: Any) -> ShardSpec:
    run = Profile("cpu", "llamacpp", **{"context_length": 2048, "parallel": 4, **profile})
    return ShardSpec("r-0.0", "r-0", "m", run, Source("hf:pretended/m/m.gguf"), free_port(), KEY)


class Started:
    def __init__(self, folder: Path, wanted: ShardSpec, **changes: Any) -> None:
        self.spec, self.log = wanted, folder / "engine.log"
        self.engine = PretendedEngine(
            Identity(1, 1, "boot"),
            Mark("h", "r-0.0", "l"),
            wanted,
            QUICK,
            changes.pop("names", ENGINES["llamacpp"].metrics(None)),
            **{
                "host": "127.0.0.1",
                "log": self.log,
                "load_s": 0.0,
                "answer_speed": 10.0,
                "listens": True,
                "behaviour": "well",
                "memory_problem": None,
                "answered": lambda: None,
                "ended": lambda engine: None,
                **changes,
            },
        )
        self.url = f"http://127.0.0.1:{wanted.port}"

    async def ready(self) -> Started:
        async with asyncio.timeout(5):
            while not self.engine.loaded or (r := self.engine.answer("/health", "")) is None or r.status != 200:
                await asyncio.sleep(0.01)
        return self


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Started]:
    started = await Started(tmp_path, spec()).ready()
    yield started
    started.engine.end(Exit(status=0))
    await asyncio.sleep(0)


def ask(**body: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "hello"}], **body}


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}, timeout=5) as made:
        yield made


async def test_it_answers_whole_and_streamed_alike(engine: Started, client: httpx.AsyncClient) -> None:
    url = f"{engine.url}/v1/chat/completions"
    whole = (await client.post(url, json=ask(max_tokens=12))).json()
    assert whole["usage"]["completion_tokens"] == 12
    assert whole["choices"][0]["finish_reason"] == "length"
    text, last, usage = "", "", None
    body = ask(max_tokens=12, stream=True, stream_options={"include_usage": True})
    async with client.stream("POST", url, json=body) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                event = json.loads(line[6:])
                usage = event.get("usage") or usage
                text += "".join(c["delta"].get("content") or "" for c in event["choices"])
            last = line or last
    assert last == "data: [DONE]"
    assert text == whole["choices"][0]["message"]["content"]
    assert usage == whole["usage"]


async def test_it_wants_its_key_and_knows_its_name(engine: Started, client: httpx.AsyncClient) -> None:
    async with httpx.AsyncClient() as stranger:
        assert (await stranger.get(f"{engine.url}/v1/models")).status_code == 401
        assert (await stranger.get(f"{engine.url}/metrics")).status_code == 401
        assert (await stranger.get(f"{engine.url}/health")).status_code == 200
    assert [m["id"] for m in (await client.get(f"{engine.url}/v1/models")).json()["data"]] == ["m"]
    assert (await client.post(f"{engine.url}/v1/chat/completions", json=ask(model="x"))).status_code == 404
    long = ask(messages=[{"role": "user", "content": "word " * 4000}])
    assert (await client.post(f"{engine.url}/v1/chat/completions", json=long)).status_code == 400


async def test_it_tells_its_load_under_the_engines_names(engine: Started, client: httpx.AsyncClient) -> None:
    await client.post(f"{engine.url}/v1/chat/completions", json=ask(max_tokens=5))
    told = (await client.get(f"{engine.url}/metrics")).text
    names = ENGINES["llamacpp"].metrics(None)
    assert f"{names.completion_tokens_total} 5\n" in told
    assert f"{names.running} 0\n" in told


@pytest.mark.slow
async def test_it_conforms(tmp_path: Path) -> None:
    started = await Started(tmp_path, spec(), answer_speed=1.0).ready()
    report = await asyncio.to_thread(conform, Target(started.url, KEY, "m"))
    assert not [f for f in report.findings if f.verdict is Verdict.BROKEN]
    assert report.count(Verdict.HELD) >= 30
    started.engine.end(Exit(status=0))


@pytest.mark.parametrize("behaviour", ["garbage", "hang", "slow"])
async def test_it_fails_as_it_is_told(behaviour: str, tmp_path: Path, client: httpx.AsyncClient) -> None:
    started = await Started(tmp_path, spec()).ready()
    started.engine.behaviour = behaviour
    url = f"{started.url}/v1/chat/completions"
    if behaviour == "garbage":
        assert b"{not: json" in (await client.post(url, json=ask())).content
    elif behaviour == "hang":
        with pytest.raises(httpx.ReadTimeout):
            await client.post(url, json=ask(), timeout=0.3)
    else:
        assert (await client.post(url, json=ask(max_tokens=2))).status_code == 200
    started.engine.end(Exit(signal=9))
    assert (await started.engine.ended()).signal == 9
    with pytest.raises(httpx.TransportError):
        await client.get(f"{started.url}/health")


async def test_one_without_memory_says_so_last(tmp_path: Path) -> None:
    started = Started(tmp_path, spec(), memory_problem="torch.OutOfMemoryError: CUDA out of memory.")
    assert (await started.engine.ended()).status == 1
    assert "CUDA out of memory" in started.log.read_text()


def test_speed_follows_the_hardware() -> None:
    weights = Weights(140 * 10**9, 70e9)
    one, eight = figures.speed(weights, "h200-140g", 1), figures.speed(weights, "h200-140g", 8)
    slow = figures.speed(weights, "l40s-45g", 8)
    assert eight.step_s < one.step_s / 3
    assert slow.step_s > eight.step_s
    assert figures.speed(weights, "h200-140g-mig-3g.71gb", 1).step_s > one.step_s
    assert figures.speed(weights, None, 0).step_s > slow.step_s
    assert one.step(32) < 2 * one.step(1)
    assert MetricNames().running is None
