"""What every engine must do for the agent and the gateway, asked of real engines where there are any, and of stand-ins.

Real: llama.cpp from its wheel always; a `llama-server` executable where LLMGW_TEST_LLAMA_SERVER names one; vLLM where
LLMGW_TEST_VLLM names its executable and LLMGW_TEST_VLLM_WEIGHTS a folder with a small model.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from agent import starter
from agent.core.readiness import Verdict
from agent.engine import Paths
from agent.wire.shard import ShardSpec
from gateway.core import gauges
from tests.agent.engines.profiles import KEY, shard
from tests.agent.engines.running import Running, at, free_ports, stand_in

TINY = str(Path(starter.__file__).parent / "tiny.gguf")


@dataclass(frozen=True)
class Case:
    name: str
    engine: str
    real: bool
    shard: ShardSpec
    ready_s: float = 20.0
    executable: str | None = None
    """None: of a stand-in."""
    weights: str | None = None


def _from(variable: str) -> str:
    found = os.environ.get(variable)
    if not found:
        pytest.skip(f"{variable} names no executable: the real engine is asked by hand, see docs/engines.md")
    return found


def case(name: str) -> Case:
    match name:
        case "llamacpp-wheel":
            pytest.importorskip("xllamacpp", reason="the xllamacpp wheel is not installed")
            return Case(
                name, "llamacpp", True, shard("llamacpp", (), context_length=512, parallel=2), 20, sys.executable, TINY
            )
        case "llamacpp-executable":
            path = _from("LLMGW_TEST_LLAMA_SERVER")
            return Case(name, "llamacpp", True, shard("llamacpp", (), context_length=512, parallel=2), 20, path, TINY)
        case "vllm-real":
            args = ("--dtype", "float32", "--enforce-eager")
            env = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
            spec = shard("vllm", (), context_length=1024, parallel=8, args=args, env=env)
            return Case(name, "vllm", True, spec, 300, _from("LLMGW_TEST_VLLM"), _from("LLMGW_TEST_VLLM_WEIGHTS"))
        case _:
            return Case(name, name, False, shard(name, context_length=1024, parallel=8, tp=1))


CASES = [
    "llamacpp-wheel",
    "llamacpp-executable",
    pytest.param("vllm-real", marks=pytest.mark.timeout(400)),
    "vllm",
    "sglang",
    "trtllm",
]


@pytest.fixture(params=CASES)
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Case, Running]]:
    found = case(request.param)
    (port,) = free_ports()
    weights = found.weights
    if weights is None:
        weights = str(tmp_path / "weights")
        Path(weights).mkdir()
    executable = found.executable or stand_in(found.engine, tmp_path / "bin")
    run = Running(at(found.shard, port), Paths(weights, executable, str(tmp_path / "scratch"), "lo"))
    try:
        run.start()
        yield found, run
    finally:
        run.clean()


@pytest.mark.slow
def test_an_engine_keeps_the_contract(running: tuple[Case, Running]) -> None:
    """One walk through a shard's life: a start is what costs."""
    case, run = running
    ready_s = run.until_ready(case.ready_s)
    _starts_loads_and_is_ready(run)
    _demands_the_key(run)
    _chats(run)
    metrics = _tells_its_load(run)
    _shows_no_key(run)
    ended_s = _ends_when_told(run)
    _record(run, case, metrics, ready_s, ended_s)


def _starts_loads_and_is_ready(run: Running) -> None:
    """In this order, never back, and never as somebody else."""
    order = [Verdict.STARTING, Verdict.LOADING, Verdict.READY]
    assert run.seen[0] is Verdict.STARTING
    assert run.seen[-1] is Verdict.READY
    assert run.seen == sorted(run.seen, key=order.index)


def _demands_the_key(run: Running) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
    for key in (None, "wrong", KEY + "x", KEY[:-1]):
        if run.shard.profile.engine != "llamacpp":  # older builds of it list their model to anybody
            assert run.get("/v1/models", key)[0] == 401
        assert run.post("/v1/chat/completions", body, key)[0] == 401
        if run.shard.profile.engine != "llamacpp":
            assert run.post("/invocations", body, key)[0] in (401, 404)
        if run.shard.profile.engine == "vllm":
            assert run.post("/tokenize", {"model": "m", "prompt": "hi"}, key)[0] == 401
            assert run.get("/metrics", key)[0] == 401
    assert run.get("/health", None)[0] == 200


def _chats(run: Running) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "3+4=?"}], "max_tokens": 8, "temperature": 0}
    status, answer = run.post("/v1/chat/completions", body, KEY)
    assert status == 200, answer
    said = json.loads(answer)
    assert said["choices"][0]["message"]["content"]
    assert said["usage"]["prompt_tokens"] > 0
    assert said["usage"]["completion_tokens"] > 0


def _tells_its_load(run: Running) -> bytes:
    names = run.engine.metrics(None)
    status, text = run.get(names.path, KEY)
    assert status == 200
    load = gauges.read(text, names)
    assert load.running == 0
    assert load.waiting == 0
    assert (load.kv_usage is not None) == (names.kv_cache_usage is not None)
    for name in (names.prompt_tokens_total, names.completion_tokens_total):
        assert name is None or f"\n{name}".encode() in text
    return text


def _shows_no_key(run: Running) -> None:
    lines = run.command_lines()
    assert lines
    assert KEY not in lines
    assert KEY not in run.log()


def _ends_when_told(run: Running) -> float:
    took_s = run.end(run.shard.profile.stop_grace_s)
    assert took_s < run.shard.profile.stop_grace_s
    return took_s


def _record(run: Running, case: Case, metrics: bytes, ready_s: float, ended_s: float) -> None:
    """What a real engine did, for `recorded/`, where LLMGW_TEST_RECORD names a folder."""
    folder = os.environ.get("LLMGW_TEST_RECORD")
    if not folder or not case.real:
        return
    shown = Paths("/weights", f"/engine/{Path(run.paths.engine).name}", "/scratch", "lo")
    (command,) = run.engine.commands(replace(run.shard, port=9100), shown, "127.0.0.1")
    names = sorted({line.split()[2] for line in metrics.decode().splitlines() if line.startswith("# TYPE ")})
    told: dict[str, Any] = {
        "argv": command.argv,
        "env": command.env,
        "probes": run.seen,
        "ready_s": round(ready_s, 1),
        "ended_s": round(ended_s, 2),
        "metrics": [name for name in names if not name.startswith(("python_", "process_"))],
    }
    Path(folder, f"{case.name}.json").write_text(json.dumps(told, indent=1) + "\n")


MANY = {
    "vllm-mp": {"engine": "vllm", "tp": 1, "pp": 2, "executor": "mp"},
    "vllm-ray": {"engine": "vllm", "tp": 1, "pp": 2, "executor": "ray"},
    "sglang": {"engine": "sglang", "tp": 2},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MANY))
def test_ranks_meet_serve_and_go_together(name: str, tmp_path: Path) -> None:
    """Stand-ins only: two ranks on this machine, the worker started first."""
    profile: dict[str, Any] = dict(MANY[name])
    engine = profile.pop("engine")
    port, meeting = free_ports(2)
    executable = stand_in(engine, tmp_path / "bin")
    (tmp_path / "weights").mkdir()
    ranks = [
        Running(
            at(shard(engine, (0,), rank, addresses=("127.0.0.1",) * 2, nodes=2, **profile), port, meeting),
            Paths(str(tmp_path / "weights"), executable, str(tmp_path / f"scratch{rank}"), "lo"),
        )
        for rank in (0, 1)
    ]
    leader, worker = ranks
    assert leader.engine.serves_http(0)
    assert not leader.engine.serves_http(1)
    order = (leader, worker) if name == "vllm-ray" else (worker, leader)
    try:
        if name == "vllm-ray":  # the server waits for the cards, so the worker has to come while it does
            import threading

            starts = threading.Thread(target=leader.start)
            starts.start()
            worker.start()
            starts.join()
        else:
            for rank in order:
                rank.start()
        leader.until_ready(20)
        _demands_the_key(leader)
        _chats(leader)
        leader.end()
        if name == "vllm-ray":
            leader.processes[0].terminate()  # the head is a sidecar, which the agent ends with the shard
        assert worker.processes[-1].wait(10) != 0
    finally:
        for rank in ranks:
            rank.clean()
