"""What a replica carries: the levels and their judgement, and a real llama.cpp driven until a promise is missed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import httpx
import pytest
from django.core.management import call_command
from django.test import Client

from agent import starter
from catalog import selectors as catalog
from catalog.core.slo import Slo
from fleet import benches, models, nudges
from fleet.core.capacity import Answered, Level, capacity, ladder, level, p99
from fleet.measuring import Shape
from fleet.selectors.world import engine_key
from llmgw.cluster.models import AuditEntry
from tenancy.models import Person
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


@pytest.mark.slow
def test_a_worker_carries_a_measurement_out_and_hears_when_it_is_to_stop(
    engine: models.Replica, redis_url: str, nobody_measures: None
) -> None:
    small, most = Shape(8, 8, 0.4, 2), Shape(8, 8, 30.0, 64)
    begun = benches.begin(name="tiny", actor="ada", slo=Slo(20.0, 5.0), shape=small, save=True)
    assert benches.of("tiny") == begun
    assert begun.state == "waiting"
    benches.carry_out("tiny", begun.id)
    done = benches.of("tiny")
    assert done is not None
    assert (done.state, [x["concurrency"] for x in done.levels]) == ("done", [1, 2])
    assert done.found is not None
    assert done.found["saved"]
    assert catalog.entry("tiny").measured["cpu"]["concurrency"] == 2
    benches.carry_out("tiny", begun.id)  # the same message once more
    assert benches.of("tiny") == done

    again = benches.begin(name="tiny", actor="ada", slo=Slo(20.0, 5.0), shape=most)
    threading.Timer(0.5, lambda: benches.stop(name="tiny")).start()
    began = time.monotonic()
    benches.carry_out("tiny", again.id)
    assert time.monotonic() - began < 20
    stopped = benches.of("tiny")
    assert stopped is not None
    assert (stopped.state, stopped.found) == ("stopped", None)


@pytest.fixture
def nobody_measures(redis_url: str) -> Iterator[None]:
    nudges.client().delete(benches.NOW, benches.KEY + "tiny")
    yield
    nudges.client().delete(benches.NOW, benches.KEY + "tiny")


@pytest.fixture
def administrator(db: None) -> Client:
    client = Client()
    client.force_login(
        Person.objects.create_superuser("ada@example.com", "correct horse battery"),
        backend="django.contrib.auth.backends.ModelBackend",
    )
    return client


def test_asked_for_by_the_api_one_at_a_time(administrator: Client, nobody_measures: None) -> None:
    rows.link_is_up()
    rows.joined()
    replica = rows.serving()
    address = "/api/v1/models/tiny/bench"
    assert administrator.get(address).status_code == 404
    refused = administrator.post(address, {}, content_type="application/json")
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "no_slo")
    begun = administrator.post(address, {"ttft": "2s", "keep": True}, content_type="application/json")
    assert begun.status_code == 202
    assert (begun.json()["replica"], begun.json()["state"], begun.json()["ttft_p99_s"]) == (
        replica.public_id,
        "waiting",
        2.0,
    )
    beside = administrator.post(address, {"ttft": "2s"}, content_type="application/json")
    assert (beside.status_code, beside.json()["error"]["code"]) == (409, "bench_runs")
    assert administrator.delete(address).json()["state"] == "stopping"
    nudges.client().delete(benches.NOW)  # as when whoever measured is gone
    lost = administrator.get(address).json()
    assert (lost["state"], lost["reason"]) == ("lost", "no worker took it up")
    assert AuditEntry.objects.get(action="model.bench").subject == "tiny"


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
