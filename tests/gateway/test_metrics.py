"""Figures from processes through Redis to Prometheus: sums, the dead, what nobody knows; all are documented."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from prometheus_client.parser import text_string_to_metric_families

from llmgw import exporter, metrics, series
from llmgw.up import redis as redis_server
from tests.gateway.edges import AUTH, EdgeProcess, chat, endpoint
from tests.gateway.upstreams import DONE, Call, delta, engine, finish, usage

ROOT = Path(__file__).resolve().parents[2]


def figures(**counts: float) -> metrics.Figures:
    found = metrics.Figures()
    found.add(series.RETRIES, ("tiny",), counts.get("retries", 1))
    found.put(series.IN_FLIGHT, counts.get("in_flight", 1), ("tiny",))
    found.put(series.SNAPSHOT_VERSION, counts.get("version", 5), ("tenancy",))
    found.observe(series.TPOT, 0.004, ("tiny",))
    return found


def test_sums_and_the_oldest() -> None:
    merged = metrics.merge([figures().state("edge", 0), figures(retries=2, in_flight=3, version=4).state("edge", 0)])
    assert merged.counters == [("llmgw_retries_total", ["tiny"], 3)]
    assert sorted(merged.gauges) == [
        ("llmgw_requests_in_flight", ["tiny"], 4),
        ("llmgw_snapshot_version", ["tenancy"], 4),
    ]
    assert merged.histograms[0][2][:4] == [0.008, 0, 0, 2]


def total(series: list[tuple[str, list[str], float]], metric: series.Metric) -> float:
    return sum(value for name, _, value in series if name == metric.name)


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(f"{redis_url}?db=14") as found:
        found.flushdb()
        yield found


def test_many_observed_at_once_are_as_if_each_was() -> None:
    values = [0.0, 0.5, 1e-3, 1e9, 0.02, *series.INTER_TOKEN.buckets]
    each, at_once = metrics.Figures(), metrics.Figures()
    for value in values:
        each.observe(series.INTER_TOKEN, value, ("a",))
    at_once.observe_all(series.INTER_TOKEN, [], ("a",))
    assert not at_once.histograms
    at_once.observe_all(series.INTER_TOKEN, values, ("a",))
    (told,), (wanted,) = at_once.histograms.values(), each.histograms.values()
    assert told[1:] == wanted[1:]
    assert told[0] == pytest.approx(wanted[0])


def test_the_dead_leave_their_counters(client: redis.Redis) -> None:
    seen = exporter.Figures(client)
    alive, dead = metrics.Pusher("edge", figures()), metrics.Pusher("web", figures(retries=10))
    for pusher in (alive, dead):
        key, data, _ = pusher.next()
        client.set(key, data)
    state, up = seen.read(100.0) or pytest.fail("Redis is there")
    assert up == {"edge": 1, "web": 1}
    assert total(state.counters, series.RETRIES) == 11
    for now in (104.0, 108.0, 112.0, 116.0, 120.0):
        key, data, _ = alive.next()
        client.set(key, data)
        state, up = seen.read(now) or pytest.fail("Redis is there")
        assert total(state.counters, series.RETRIES) == 11
    assert up == {"edge": 1}
    assert total(state.gauges, series.IN_FLIGHT) == 1
    assert client.exists(metrics.DEAD)
    assert len(client.keys(f"{metrics.PREFIX}*")) == 2


def test_a_process_that_was_stopped_for_long_begins_anew() -> None:
    now = 0.0
    pusher = metrics.Pusher("edge", figures(retries=4), now=lambda: now)
    key, _, state = pusher.next()
    pusher.pushed(state)
    now = 5.0
    assert pusher.next()[0] == key
    now = 60.0
    pusher.figures.add(series.RETRIES, ("tiny",))
    again, _, state = pusher.next()
    assert again != key
    assert state.counters == [("llmgw_retries_total", ["tiny"], 1)]


async def test_what_is_exposed_is_what_is_documented(own_edge: EdgeProcess, tmp_path: Path) -> None:
    async def script(call: Call) -> None:
        await call.stream(delta("a"), end=False)
        await asyncio.sleep(0.05)
        for piece in (delta("b"), finish(), usage(), DONE):
            await call.piece(piece)
        await call.raw(b"0\r\n\r\n")

    socket_ = tmp_path / "r.sock"
    binary = redis_server.binary()
    assert binary is not None

    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen([binary, *redis_server.arguments(socket_, tmp_path)], stdout=subprocess.DEVNULL)
        while not socket_.exists():
            time.sleep(0.01)
        return process

    server = start()
    own_edge.redis_url = f"unix://{socket_}"
    own_edge.start()
    sock = socket.create_server(("127.0.0.1", 0))
    os.set_inheritable(sock.fileno(), True)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}/metrics"
    process = subprocess.Popen(
        [sys.executable, "-m", "llmgw.exporter"],
        cwd=ROOT,
        env={**os.environ, "LLMGW_HOME": str(own_edge.home), "LLMGW_REDIS": own_edge.redis_url}
        | {"LLMGW_LISTEN_FD": str(sock.fileno())},
        pass_fds=[sock.fileno()],
    )
    sock.close()
    try:
        async with engine(script) as up, httpx.AsyncClient(base_url=own_edge.url, headers=AUTH) as http:
            own_edge.serve(endpoint(up.port))
            await http.post("/v1/chat/completions", json=chat(stream=True))
            await http.post("/v1/chat/completions", json=chat(model="gpt-9"))
        found = scrape(url, "llmgw_ttft_seconds")
        sample = {(s.name, *sorted(s.labels.values())): s.value for f in found.values() for s in f.samples}
        assert sample["llmgw_requests_total", "chat", "ok", "orchid-8b"] == 1
        assert sample["llmgw_requests_total", "", "chat", "refused"] == 1
        assert sample["llmgw_tokens_total", "orchid-8b", "prompt"] == 11
        assert sample["llmgw_ttft_seconds_count", "orchid-8b"] == 1
        assert sample["llmgw_requests_in_flight", "orchid-8b"] == 0
        assert sample["llmgw_up", "edge"] == 1
        assert sample["llmgw_endpoint_attempts_total", "answered", "orchid-8b", "r-0000000001"] == 1
        assert sample["llmgw_tenant_output_tokens_per_second_count", "p1"] == 1
        assert sample["llmgw_inter_token_seconds_count", "orchid-8b"] >= 1
        promtool("check", "metrics", stdin=text(url))
        own_edge.serve(endpoint(up.port, "r-0000000002"))
        wait_until(lambda: 'replica="r-0000000001"' not in text(url), "a replica's counters go with it")
        for name, family in found.items():
            metric = series.BY_NAME.get(name) or series.BY_NAME[f"{name}_total"]
            for sample_ in family.samples:
                assert set(sample_.labels) - {"le"} == set(metric.labels)
        server.kill()
        server.wait()
        socket_.unlink()
        away = text(url)
        assert "llmgw_redis_up 0.0" in away
        assert "llmgw_requests_total" not in away, "absent, not zero"
        server = start()
        again = scrape(url, "llmgw_ttft_seconds")
        counted = [s.value for s in again["llmgw_requests"].samples if s.labels["outcome"] == "ok"]
        assert counted == [1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 0
    finally:
        for each in (server, process):
            each.kill()
            each.wait()


def promtool(*words: str, stdin: str | None = None, cwd: Path = ROOT) -> None:
    """Prometheus's own judgement."""
    binary = shutil.which("promtool") or str(Path(sys.executable).parent.parent / "tools" / "promtool")
    if not Path(binary).exists():
        pytest.skip("promtool is not here: tests/os-packages.sh fetches it when it may")
    found = subprocess.run([binary, *words], input=stdin, cwd=cwd, capture_output=True, text=True, timeout=30)
    assert found.returncode == 0, found.stdout + found.stderr
    assert not found.stderr.strip(), found.stderr


def test_prometheus_takes_what_is_shipped_for_it() -> None:
    folder = ROOT / "deploy/monitoring"
    promtool("check", "config", "prometheus.yml", cwd=folder)
    promtool("test", "rules", "alerts_test.yml", cwd=folder)


def test_alerts_name_metrics_that_there_are() -> None:
    said = (ROOT / "deploy/monitoring/alerts.yml").read_text()
    assert set(re.findall(r"llmgw_\w+", said)) <= set(series.BY_NAME)


def test_what_a_dead_process_counted_of_replicas_goes_with_it(client: redis.Redis) -> None:
    seen = exporter.Figures(client)
    counted = figures()
    counted.add(series.ATTEMPTS, ("tiny", "r-1", "answered"), 3)
    key, data, _ = metrics.Pusher("edge", counted).next()
    client.set(key, data)
    state, _ = seen.read(100.0) or pytest.fail("Redis is there")
    assert total(state.counters, series.ATTEMPTS) == 3
    state, _ = seen.read(130.0) or pytest.fail("Redis is there")
    assert (total(state.counters, series.ATTEMPTS), total(state.counters, series.RETRIES)) == (0, 1)


def wait_until(true: Callable[[], bool], why: str, timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, why
        time.sleep(0.1)


def text(url: str) -> str:
    deadline = time.monotonic() + 10
    while True:
        try:
            return httpx.get(url, timeout=5).text
        except httpx.HTTPError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def scrape(url: str, wanted: str) -> dict[str, Any]:
    deadline = time.monotonic() + 10
    while True:
        found = {f.name: f for f in text_string_to_metric_families(text(url))}
        if wanted in found:
            return found
        assert time.monotonic() < deadline, sorted(found)
        time.sleep(0.1)


def test_every_metric_is_documented() -> None:
    rows = re.findall(
        r"^\| `(llmgw_\w+)` \| (\w+) \| (.*?) \| (\w+) \| (.+) \|$", (ROOT / "docs/metrics.md").read_text(), re.M
    )
    documented = {name: (kind, labels, source, help_) for name, kind, labels, source, help_ in rows}
    assert documented == {
        m.name: (m.kind, ", ".join(f"`{x}`" for x in m.labels) or "–", m.source, m.help) for m in series.ALL
    }
