"""What moves on nodes: from heartbeats by the link to Prometheus, without a row being written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import redis
import redis.asyncio
from asgiref.sync import sync_to_async
from django.utils import timezone
from prometheus_client import exposition
from prometheus_client.registry import CollectorRegistry

from agent.wire.facts import EngineFacts, GpuFacts, GpuFigures, NvLink, PortFacts
from agent.wire.messages import Heartbeat
from fleet import models, selectors
from fleet.link.figures import Figures
from llmgw import exporter, node_figures
from tests.fleet import rows
from tests.fleet.agents import FACTS, GIB, Agent, papers
from tests.fleet.links import Link
from tests.gateway.test_metrics import promtool

CARD = GpuFacts(
    0, "GPU-0", "NVIDIA H100", "h100-80g", 80 * GIB, 79 * GIB, "9.0", 40, 90.0, 700.0, 3.0, nvlinks=(NvLink(1, 18),),
    ecc_uncorrected=2,
)  # fmt: skip
INSTANCE = replace(
    CARD, index=1102, uuid="MIG-1", gpu_class="h100-80g-mig-1g.10gb", memory_bytes=10 * GIB, nvlinks=None
)
SILENT = GpuFacts(1, "GPU-1", problem="the driver does not answer")
FULL = replace(
    FACTS,
    gpus=(CARD, SILENT, INSTANCE),
    rdma_ports=(PortFacts("mlx5_0", 1, active=False), PortFacts("mlx5_1", 1)),
    engines=(EngineFacts("llamacpp", "1"), EngineFacts("vllm", problem="no uv")),
)
MOVING = (
    GpuFigures(0, 12 * GIB, 61, 512.5, 92.0, 69.0, None, 18.0, 30.5),
    GpuFigures(1),
    GpuFigures(1102, 3 * GIB, 61, 512.5, 50.0, 50.0),
)


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as found:
        found.delete(node_figures.KEY)
        yield found
        found.delete(node_figures.KEY)


def scraped(client: redis.Redis) -> dict[str, float]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(exporter.Exposition(exporter.Figures(client)))
    text = exposition.generate_latest(registry).decode()
    promtool("check", "metrics", stdin=text)
    lines = (line.rpartition(" ") for line in text.splitlines() if line.startswith(("llmgw_node_", "llmgw_gpu_")))
    return {name: float(value) for name, _, value in lines}


@pytest.mark.slow
async def test_what_a_heartbeat_says_of_cards_is_scraped_and_writes_no_row(
    link: Link, tmp_path: Path, client: redis.Redis
) -> None:
    cert = await sync_to_async(papers)("n1", tmp_path)
    async with Agent(cert, link.port) as agent:
        agent.facts = FULL
        await agent.join()
        await agent.say(Heartbeat((), 0, 20 * GIB, None, 0.5, MOVING))
        async with asyncio.timeout(10):
            while (found := await asyncio.to_thread(scraped, client)).get('llmgw_node_load_1m{node="n1"}') is None:
                await asyncio.sleep(0.2)
        card, one = 'gpu="0",gpu_class="h100-80g",node="n1"', 'gpu="1/mig2",gpu_class="h100-80g-mig-1g.10gb",node="n1"'
        assert {name: value for name, value in found.items() if card in name} == {
            f"llmgw_gpu_{name}{{{card}}}": value
            for name, value in {
                "memory_bytes": 80.0 * GIB, "memory_free_bytes": 12.0 * GIB, "temperature_celsius": 61,
                "power_watts": 512.5, "power_limit_watts": 700, "utilization_percent": 92, "sm_active_percent": 69,
                "tensor_active_percent": 18, "dram_active_percent": 30.5, "ecc_uncorrected": 2, "nvlink_peers": 1,
                "problem": 0,
            }.items()
        }  # fmt: skip
        assert {name for name in found if one in name} == {
            f"llmgw_gpu_{name}{{{one}}}"
            for name in ("memory_bytes", "memory_free_bytes", "temperature_celsius", "problem")
        }, "an instance is never told with its card's draw and counters"
        silent = 'gpu="1",gpu_class="",node="n1"'
        assert {n: v for n, v in found.items() if silent in n} == {f"llmgw_gpu_problem{{{silent}}}": 1}
        assert {n: v for n, v in found.items() if n.startswith("llmgw_node_") and "bytes" not in n} == {
            'llmgw_node_cpus{node="n1"}': 8, 'llmgw_node_load_1m{node="n1"}': 0.5,
            'llmgw_node_port_active{adapter="mlx5_0",node="n1",port="1"}': 0,
            'llmgw_node_engine_problem{engine="llamacpp",node="n1"}': 0,
            'llmgw_node_engine_problem{engine="vllm",node="n1"}': 1,
        }  # fmt: skip
        row = await models.Node.objects.aget(node_id="n1")
        assert row.facts["gpus"][0]["temperature_c"] == 40, "rows keep what the report said"
    async with asyncio.timeout(10):
        while await asyncio.to_thread(client.hexists, node_figures.KEY, "n1"):
            await asyncio.sleep(0.2)


async def test_a_thousand_nodes_cost_little_and_old_news_are_no_news(client: redis.Redis, redis_url: str) -> None:
    now = time.time()
    figures = Figures(lambda: now)
    facts = replace(FULL, gpus=tuple(replace(CARD, index=i) for i in range(8)))
    beat = Heartbeat((), 0, 20 * GIB, None, 0.5, tuple(replace(MOVING[0], index=i) for i in range(8)))
    names = [f"n{i}" for i in range(1000)]
    for name in names:
        figures.report(name, facts)
    began = time.process_time()
    for name in names:
        figures.heartbeat(name, beat)
    async with redis.asyncio.Redis.from_url(redis_url) as out:
        await figures.put(out)
    wrote_s = time.process_time() - began
    began = time.process_time()
    shown = node_figures.gauges(node_figures.read(client.hgetall(node_figures.KEY), now))  # type: ignore[arg-type]
    print(f"1000 nodes of 8 cards: {wrote_s:.3f} s to write, {time.process_time() - began:.3f} s to read")
    assert len(shown.gauges) == 1000 * (8 * 12 + 7)
    assert wrote_s < 0.5
    old = node_figures.read(client.hgetall(node_figures.KEY), now + 16)  # type: ignore[arg-type]
    assert list(old) == []
    figures.gone("n0")
    async with redis.asyncio.Redis.from_url(redis_url) as out:
        await figures.put(out)
    assert client.hlen(node_figures.KEY) == 999


@pytest.mark.django_db
def test_a_nodes_page_shows_what_heartbeats_say_and_never_old_figures(client: redis.Redis) -> None:
    def shown() -> list[tuple[object, ...]]:
        cards = selectors.node("n1")["gpu_details"]
        return [(c["power_w"], c["sm_active_percent"], c["memory_free_bytes"]) for c in cards]

    rows.joined("n1", facts=FULL)
    assert shown()[0] == (90.0, None, 79 * GIB), "the report is new"
    told = node_figures.reported(FULL, time.time())
    told.gpus = MOVING
    client.hset(node_figures.KEY, "n1", node_figures.encode(told))
    assert shown() == [(512.5, 69.0, 12 * GIB), (None, None, None), (512.5, 50.0, 3 * GIB)]
    told.at -= 60
    client.hset(node_figures.KEY, "n1", node_figures.encode(told))
    models.Node.objects.update(reported_at=timezone.now() - timedelta(minutes=5))
    assert shown()[0] == (None, None, None)
