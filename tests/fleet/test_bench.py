"""What a replica carries: the levels and their judgement, and a real llama.cpp driven until a promise is missed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx
import pytest
from django.core.management import call_command

from agent import starter
from catalog import selectors as catalog
from catalog.core.slo import Slo
from fleet import models
from fleet.core.capacity import Answered, Level, capacity, ladder, level, p99
from fleet.selectors.world import engine_key
from llmgw.cluster.models import AuditEntry
from tests.fleet import rows

PROMISE = Slo(1.0, 0.05)


def test_the_ladder_climbs_by_half_at_most() -> None:
    assert list(ladder(48)) == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48]
    assert list(ladder(1)) == [1]
    assert list(ladder(5)) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("answered", "failed", "why"),
    [
        ([Answered(0.5, 0.04, 9)] * 99 + [Answered(0.9, 0.05, 9)], 0, ""),
        ([Answered(0.5, 0.04, 9), Answered(1.2, 0.04, 9)], 0, "the first token took 1.2 s, and 1 s are promised"),
        ([Answered(0.5, 0.061, 9)], 0, "a token took 61 ms, and 50 ms are promised"),
        ([Answered(0.5, 0.04, 9)], 2, "2 of 3 requests failed"),
        ([], 0, "no request was answered in time"),
        ([Answered(0.5, None, 1)], 0, ""),
    ],
)
def test_a_level_is_judged_against_the_promise(answered: list[Answered], failed: int, why: str) -> None:
    found = level(4, answered, failed, 2.0, PROMISE)
    assert (found.held, found.why) == (not why, why)


def test_the_last_level_that_held_is_the_capacity_and_not_the_peak() -> None:
    def one(concurrency: int, rate: float, held: bool) -> Level:
        return Level(concurrency, 10, 0, 1.0, rate, rate / 10, 0.1, 0.01, held=held)

    found = capacity([one(1, 50, True), one(2, 90, True), one(3, 120, False)])
    assert found.best is not None
    assert (found.best.concurrency, found.weight, found.climbs_on) == (2, 9.0, False)
    assert capacity([one(1, 50, False)]).best is None
    assert capacity([one(1, 50, True)]).climbs_on


def test_of_few_requests_the_worst_counts() -> None:
    assert p99([0.1, 0.2, 0.9]) == 0.9
    assert p99([float(n) for n in range(1, 201)]) == 198.0
    assert p99([]) is None


@pytest.fixture
def engine(db: None) -> Iterator[models.Replica]:
    """A real llama.cpp, and the rows of the replica that it is."""
    rows.link_is_up()
    rows.joined()
    replica = rows.serving()
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    argv = [sys.executable, "-m", "agent.launchers.llamacpp_server", "--model", str(starter.path("tiny"))]
    argv += ["--alias", "tiny", "--host", "127.0.0.1", "--port", str(port), "--ctx-size", "2048", "--parallel", "2"]
    argv += ["--threads", "1", "--metrics", "--jinja", "--no-webui", "--device", "none"]
    env = {**os.environ, "LLAMA_API_KEY": engine_key(replica.public_id)}
    process = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    replica.shards.update(address="127.0.0.1", port=port)
    deadline = time.monotonic() + 30
    while True:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                break
        except httpx.HTTPError:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield replica
    process.kill()
    process.wait()


@pytest.mark.slow
def test_a_real_replica_is_measured_and_the_figure_is_kept(
    engine: models.Replica, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ("--seconds", "0.4", "--words", "8", "--tokens", "8")
    call_command("bench", "tiny", "--ttft", "20s", "--tpot", "5s", "--most", "3", "--save", "--json", *small)
    found = json.loads(capsys.readouterr().out)
    assert [x["concurrency"] for x in found["levels"]] == [1, 2, 3]
    assert found["concurrency"] == 3
    assert found["climbs_on"]
    assert found["metrics"]
    assert found["saved"]
    assert found["weight"] == pytest.approx(found["requests_per_s"], rel=0.01)
    kept = catalog.entry("tiny").measured["cpu"]
    assert (kept["concurrency"], kept["node"], kept["ttft_p99_s"]) == (3, "n1", 20.0)
    assert AuditEntry.objects.get(action="model.measure").detail["concurrency"] == 3

    call_command("bench", "tiny", "--ttft", "20s", "--tpot", "1ms", "--most", "64", *small)
    out = capsys.readouterr().out
    assert "are promised" in out
    assert "In the profile: weight:" in out or "does not hold this promise" in out


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tiny"], "nothing is promised for tiny"),
        (["tiny", "--ttft", "soon"], "--ttft is a duration"),
        (["tiny", "--ttft", "2s"], "no replica of tiny serves"),
        (["tiny", "--ttft", "2s", "--replica", "r-1"], "r-1 is no replica of tiny that serves"),
        (["tiny", "--ttft", "2s", "--tokens", "1"], "tokens at least 2"),
        (["none", "--ttft", "2s"], "there is no model none"),
    ],
)
def test_refused_in_a_sentence(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows.tiny()
    with pytest.raises(SystemExit):
        call_command("bench", *words)
    assert said in capsys.readouterr().err
