"""What a real vLLM said of itself, held against what llmgw builds and reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.engine import Paths
from agent.engines import ENGINES, vllm
from agent.engines.rules import flag_of, refused_flags
from agent.wire.facts import EngineFacts
from tests.agent.engines.profiles import PATHS, SHARDS, shard

RECORDED = Path(__file__).parent / "recorded"
FLAGS: dict[str, int] = json.loads((RECORDED / "vllm-0.32-flags.json").read_text())["flags"]
RUN: dict[str, Any] = json.loads((RECORDED / "vllm-0.32-cpu.json").read_text())
ENGINE = ENGINES["vllm"]


@pytest.mark.parametrize("name", sorted(n for n in SHARDS if n.startswith("vllm")))
def test_every_flag_that_is_built_is_one_of_vllms(name: str) -> None:
    command = ENGINE.commands(SHARDS[name], PATHS["vllm"], "10.0.0.1")[-1]
    if "serve" in command.argv:
        assert {flag for a in command.argv if (flag := flag_of(a)) is not None} <= set(FLAGS)


def test_every_flag_that_is_refused_is_one_of_vllms() -> None:
    assert set(vllm._REFUSED) - {"--version", "-v"} <= set(FLAGS)


def test_no_flag_of_vllm_is_refused_for_resembling_another() -> None:
    allowed = [f for f in FLAGS if f not in vllm._REFUSED]
    assert [f for f in allowed if refused_flags([f], vllm._REFUSED, abbreviates=True, known=vllm._KNOWN)] == []


def test_metrics_are_named_as_it_names_them() -> None:
    names = ENGINE.metrics(EngineFacts("vllm", version="0.32.0+cpu"))
    assert names == ENGINE.metrics(None)
    wanted = (names.running, names.waiting, names.kv_cache_usage, names.prompt_tokens_total)
    assert {*wanted, names.completion_tokens_total} <= set(RUN["metrics"])


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("0.9.2", "vllm:gpu_cache_usage_perc"),
        ("0.10.1.1", "vllm:gpu_cache_usage_perc"),
        ("0.10.2", "vllm:kv_cache_usage_perc"),
        ("0.19.1", "vllm:kv_cache_usage_perc"),
        (None, "vllm:kv_cache_usage_perc"),
    ],
)
def test_a_gauge_that_was_renamed(version: str | None, name: str) -> None:
    assert ENGINE.metrics(EngineFacts("vllm", version=version)).kv_cache_usage == name


def test_what_was_run_is_still_what_is_built() -> None:
    args = ("--dtype", "float32", "--enforce-eager")
    spec = shard("vllm", (), context_length=1024, parallel=8, args=args)
    (command,) = ENGINE.commands(spec, Paths("/weights", "/engine/vllm", "/scratch", "lo"), "127.0.0.1")
    assert list(command.argv) == RUN["argv"]
    assert command.env.items() <= RUN["env"].items()
    assert RUN["probes"][-1] == "ready"
