"""The kit on real processes: our edge before a real llama.cpp, and that engine by itself; the command's door."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.core.management import call_command

from gateway.conform import run as kit
from gateway.conform.judgement import Verdict
from gateway.conform.target import Target
from gateway.core import grammar, snapshot
from llmgw import secrets
from llmgw.keys import engine_key
from tests.gateway.conform.standin import KEY as STANDIN_KEY
from tests.gateway.conform.standin import StandIn
from tests.gateway.conftest import llamacpp
from tests.gateway.edges import KEY, EdgeProcess, catalog, chat, endpoint
from tests.gateway.test_real_engine import free_port
from tests.gateway.upstreams import Call, engine

REPLICA = "r-00000000cc"
OF_THE_ENGINE = {"S10", "W5", "E3"}
"""What llama.cpp breaks by itself: counts nobody asked for on completions, no /v1/models/{id}, any model's name."""


@dataclass
class Engine:
    port: int
    key: str


@pytest.fixture(scope="module")
def llama(shared_edge: EdgeProcess, weights: Path) -> Iterator[Engine]:
    found = Engine(free_port(), engine_key(secrets.read_or_make(shared_edge.home / "secrets", "engine"), REPLICA))
    process = llamacpp(weights, found.port, found.key)
    yield found
    process.kill()
    process.wait(10)


def verdicts(report: kit.Report, verdict: Verdict) -> dict[str, str]:
    return {f.rule: f.sentence for f in report.findings if f.verdict is verdict}


def test_our_edge_breaks_no_rule(edge: EdgeProcess, llama: Engine) -> None:
    edge.serve(endpoint(llama.port, REPLICA, "tiny", parallel=2))
    edge.publish(catalog=catalog(tiny=snapshot.ModelEntry("tiny", ("small",), "serving", context_length=2048)))
    # Few leave at once: llama.cpp looks once a second whether a whole answer's client is still there, slot by slot.
    report = kit.run(Target(edge.url, KEY, "tiny"), together=4)
    assert not verdicts(report, Verdict.BROKEN)
    left_open = verdicts(report, Verdict.OPEN)
    assert set(left_open) <= {"S2", "S9", "S12", "W3", "H2", "L1", "L2"}, left_open


def test_llamacpp_by_itself(llama: Engine) -> None:
    report = kit.run(Target(f"127.0.0.1:{llama.port}/v1/", llama.key), ["streams", "answers", "errors"])
    assert report.model == "tiny"
    assert set(verdicts(report, Verdict.BROKEN)) == OF_THE_ENGINE, report


RECORDED = Path(__file__).parent / "recorded"


@pytest.mark.parametrize(("engine_name", "broken"), [("vllm", set()), ("transformers", {"S10", "S11"})])
async def test_recorded_streams(edge: EdgeProcess, http: httpx.AsyncClient, engine_name: str, broken: set[str]) -> None:
    """As vLLM 0.32 and transformers' server 5.24 sent them to somebody who asked for counts; and through the edge."""
    body = (RECORDED / f"{engine_name}-chat.sse").read_bytes()
    asked = grammar.Asked(usage=True)
    assert {f.rule for f in grammar.broken(body, asked)} == broken

    async def script(call: Call) -> None:
        await call.stream(*[body[i : i + 100] for i in range(0, len(body), 100)])

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        request = chat(stream=True, stream_options={"include_usage": True})
        counted = await http.post("/v1/chat/completions", json=request)
        plain = await http.post("/v1/chat/completions", json=chat(stream=True))
    assert not grammar.broken(counted.content, asked), counted.text
    assert not grammar.broken(plain.content, grammar.Asked()), plain.text
    row = edge.settlement(plain.headers["x-request-id"])
    assert (row.prompt_tokens, row.completion_tokens, row.estimated) == (16, 4, False)


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tmp_path / "key"
    key.write_text(f"{STANDIN_KEY}\n")
    monkeypatch.setenv("SOME_KEY", STANDIN_KEY)
    with StandIn() as good:
        for options in (["--key-file", str(key)], ["--key-env", "SOME_KEY"], ["--key", "env:SOME_KEY"]):
            call_command("conform", good.url, *options, "--only", "answers", "--json")
            found: dict[str, Any] = json.loads(capsys.readouterr().out)
            assert (found["passed"], found["model"], found["broken"]) == (True, "stand-in", 0)
            assert STANDIN_KEY not in json.dumps(found)
        for options in (["--key", "sk-given-as-it-is"], ["--key-env", "NOT_SET"], ["--key-file", str(tmp_path)]):
            with pytest.raises(SystemExit) as refused:
                call_command("conform", good.url, *options)
            assert refused.value.code == 2
            assert "sk-given" not in capsys.readouterr().err
        good.shutdown()
    with StandIn("W5") as bad:
        with pytest.raises(SystemExit) as failed:
            call_command("conform", bad.url, "--key-file", str(key), "--only", "answers")
        bad.shutdown()
    assert failed.value.code == 1
    said = capsys.readouterr().out
    assert "W5   BROKEN  /v1/models/{id} tells of one model" in said
    assert "1 broken" in said
    with pytest.raises(SystemExit) as nobody:
        call_command("conform", f"127.0.0.1:{free_port()}")
    assert nobody.value.code == 1
    assert "nothing answers" in capsys.readouterr().err
