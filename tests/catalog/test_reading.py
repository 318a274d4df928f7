"""A definition is read whole, or refused with every problem in it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agent.core import source as agent_source
from agent.core.source import Download, LocalFile, Starter
from catalog.core.definition import Definition, from_builtins, in_order, source_of, to_builtins
from catalog.core.reading import read
from catalog.core.slo import Slo
from catalog.core.source import normal
from catalog.core.starter import starter
from catalog.core.writing import changed_keys, written
from llmgw.cluster.errors import Invalid

FULL = """
name: qwen2.5-coder-3b-instruct
aliases: [coder]
source: https://models.internal/qwen2.5-coder-3b-instruct/2026-03/q4_k_m.gguf
sha256: 9F86D081884C7D659A2FEAA0C55AD015A3BF4F1B2B0B822CD15D6C15B0F00A08
routing_profile: long-context
context_length: 32768
max_output: 4096
scaling: { min: 1, max: 2 }
capabilities: { tools: true, vision: false }
description: Writes code.
license: Apache-2.0
profiles:
  - name: gpu
    engine: llamacpp
    gpu_class: l40s-45g
    weight: 2
    priority: 200
    source: hf:Qwen/Qwen2.5-Coder-3B-Instruct-GGUF/qwen2.5-coder-3b-instruct-q8_0.gguf@v1
    min_disk_gb: 8
  - name: cpu
    engine: llamacpp
    startup_timeout: 5m
    min_memory_gb: 8
    cpu_cores: 4
    parallel: 2
    labels: { llmgw.io/site: sto1 }
    env: { OMP_PROC_BIND: close }
    args: ["--flash-attn", "on"]
"""


def sentences(raw: Any) -> str:
    with pytest.raises(Invalid) as refused:
        read(raw)
    return "\n".join(p.sentence for p in refused.value.problems)


def test_a_definition_with_everything_in_it() -> None:
    found = read(yaml.safe_load(FULL))
    gpu, cpu = found.profiles
    assert (found.name, found.aliases, found.licence) == ("qwen2.5-coder-3b-instruct", ("coder",), "Apache-2.0")
    assert found.kinds == ("chat", "completions")
    assert (found.tools, found.vision, found.json_schema) == (True, False, None)
    assert (found.scaling.min, found.scaling.max) == (1, 2)
    assert found.sha256 is not None
    assert found.sha256.startswith("9f86")
    assert (gpu.run.gpus, gpu.run.gpu_class, gpu.weight) == (1, "l40s-45g", 2.0)
    assert source_of(found, gpu)[0].startswith("hf:Qwen/")
    assert gpu.min_disk_bytes == 8 * 1024**3
    assert source_of(found, cpu) == (found.source, found.sha256)
    assert cpu.run.startup_timeout_s == 300.0
    assert cpu.run.memory_bytes == 8 * 1024**3
    assert (cpu.run.context_length, cpu.run.parallel, cpu.run.cpu_cores) == (32768, 2, 4)
    assert cpu.labels == {"llmgw.io/site": "sto1"}
    assert [p.run.name for p in in_order(found)] == ["gpu", "cpu"]


def test_what_is_stored_and_what_is_shown_are_the_same_definition() -> None:
    found = read(yaml.safe_load(FULL))
    assert from_builtins(to_builtins(found)) == found
    assert read(written(found)) == found
    assert read(yaml.safe_load(yaml.safe_dump(written(found)))) == found


@given(
    parallel=st.integers(1, 64),
    memory=st.none() | st.floats(0.01, 4096).map(lambda g: round(g * 4) / 4 or 0.25),
    start=st.integers(1, 86400),
    priority=st.integers(0, 1000),
    weight=st.floats(0.001, 1000),
    context=st.none() | st.integers(1, 10**6),
    least=st.integers(1, 5),
    kinds=st.sampled_from(
        [{}, {"embeddings": True}, {"chat": True}, {"chat": False}, {"tools": True, "vision": False}]
    ),
)
def test_any_definition_survives_being_shown_and_read_again(
    parallel: int, memory: float, start: int, priority: int, weight: float, context: int, least: int, kinds: Any
) -> None:
    profile = {"name": "cpu", "engine": "llamacpp", "parallel": parallel, "startup_timeout": f"{start}s"}
    profile |= {"priority": priority, "weight": weight, "min_memory_gb": memory}
    raw = {"name": "a", "source": "/w/a.gguf", "context_length": context, "scaling": {"min": least}}
    found = read({**raw, "capabilities": kinds, "profiles": [profile]})
    assert read(written(found)) == found
    assert from_builtins(to_builtins(found)) == found


def test_every_problem_is_named_at_once() -> None:
    said = sentences(
        {
            "name": "Bad name",
            "aliases": ["ok", "OK", 5],
            "souce": "x",
            "context_length": "many",
            "scaling": {"min": 3, "max": 1, "mox": 2},
            "capabilities": ["chat"],
            "profiles": [
                {"name": "CPU", "engine": "lamacpp", "startup_timeout": "soon", "weight": 0, "min_memory_gb": -1},
                {"engine": "llamacpp", "args": ["--host", "0.0.0.0"], "env": {"LD_PRELOAD": "/x.so"}, "parallel": True},
                "cpu",
            ],
        }
    )
    for wanted in (
        "the name 'Bad name' must be",
        "aliases must be a list of texts, and is 5 in it (put it into quotes)",
        "there is no key souce; did you mean source?",
        "source is missing",
        "context_length must be a whole number, and is 'many'",
        "scaling: max (1) is below min (3)",
        "scaling: there is no key mox; did you mean max?",
        "capabilities must be names with their values, and is a list",
        "there is no engine lamacpp; there are llamacpp",
        "startup_timeout must be a duration like 90s, 5m or 1h30m, and is 'soon'",
        "weight must be between 0.001 and 1000, and is 0",
        "min_memory_gb must be a number of GiB above 0, and is -1",
        "profile 2: name is missing",
        "--host is refused",
        "LD_PRELOAD",
        "parallel must be a whole number, and is true",
        "profile 3 must be names with their values",
    ):
        assert wanted in said, said


@pytest.mark.parametrize("raw", [None, [], "tiny", 5])
def test_what_is_no_mapping_is_refused_in_one_sentence(raw: Any) -> None:
    assert "names with their values" in sentences(raw)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "no/slash"}, "'no/slash'"),
        ({"name": "ünicode"}, "ASCII"),
        ({"name": "x" * 121}, "1 to 120"),
        ({"name": "-x"}, "no sign at its ends"),
        ({"name": False}, "must be text, and is false"),
        ({"aliases": ["TINY"]}, "the model's own name"),
        ({"aliases": "small"}, "a list of texts"),
        ({"profiles": []}, "at least one way"),
        ({"profiles": [{"name": "a", "engine": "llamacpp"}] * 2}, "another profile of that name"),
        ({"max_output": 9, "context_length": 8}, "cannot pass"),
        ({"routing_profile": "fast"}, "routing_profile is one of"),
        ({"sha256": "abc"}, "64 hexadecimal digits"),
        ({"capabilities": {"chat": False, "completions": False}}, "at least one of"),
        ({"capabilities": {"chat": "yes"}}, "true or false"),
        ({"adapters": []}, "adapters (LoRA adapters) is not supported"),
        ({"profiles": [{"name": "a", "engine": "llamacpp", "tp": 2}]}, "llama.cpp splits a model by layers"),
        ({"profiles": [{"name": "a", "engine": "llamacpp", "weight": float("nan")}]}, "weight must be a number"),
        ({"profiles": [{"name": "a", "engine": "llamacpp", "gpu_class": "x", "gpus": 0}]}, "needs gpus: 1"),
        (
            {"profiles": [{"name": "a", "engine": "llamacpp", "gpu_class": "h100-80g-mig-1g.10gb", "gpus": 2}]},
            "a replica on MIG runs on one instance, and gpus: 2",
        ),
        ({"profiles": [{"name": "a", "engine": "llamacpp", "labels": {"a b": "x"}}]}, "the label 'a b'"),
        ({"profiles": [{"name": "a", "engine": "llamacpp", "env": {"A": 1}}]}, "env.A must be text"),
        ({"profiles": [{"name": "a", "engine": "llamacpp", "startup_timeout": "25h"}]}, "at most 86400s"),
    ],
)
def test_a_refusal_says_what_was_wrong(tiny: dict[str, Any], changes: dict[str, Any], said: str) -> None:
    assert said in sentences({**tiny, **changes})


@pytest.mark.parametrize(
    ("written_as", "seconds"), [("5m", 300), ("90s", 90), ("1h30m", 5400), (45, 45), (0.5, 0.5), ("2h", 7200)]
)
def test_durations_as_people_write_them(tiny: dict[str, Any], written_as: Any, seconds: float) -> None:
    tiny["profiles"][0]["startup_timeout"] = written_as
    assert read(tiny).profiles[0].run.startup_timeout_s == seconds


def test_what_a_model_promises(tiny: dict[str, Any]) -> None:
    found = read({**tiny, "slo": {"ttft_p99": "2s", "tpot_p99": "80ms"}})
    assert found.slo == Slo(2.0, 0.08)
    assert written(found)["slo"] == {"ttft_p99": "2s", "tpot_p99": "80ms"}
    assert from_builtins(to_builtins(found)) == found
    assert read({**tiny, "slo": {"ttft_p99": "1s500ms"}}).slo == Slo(1.5, None)
    assert read({**tiny, "slo": {}}).slo is None
    assert "slo: ttft_p99 must be a duration" in sentences({**tiny, "slo": {"ttft_p99": "soon"}})
    assert "slo: tpot_p99 must be above 0s" in sentences({**tiny, "slo": {"tpot_p99": 0}})
    assert "did you mean tpot_p99" in sentences({**tiny, "slo": {"tpot_p95": "1s"}})


@pytest.mark.parametrize(
    ("scaling", "least", "most"),
    [
        (None, 0, 0),
        ({}, 1, 1),
        ({"min": 2}, 2, 2),
        ({"max": 3}, 1, 3),
        ({"min": 0, "max": 0}, 0, 0),
        ({"max": 0}, 0, 0),
    ],
)
def test_a_model_without_scaling_is_kept_and_not_run(tiny: dict[str, Any], scaling: Any, least: int, most: int) -> None:
    found = read({**tiny, "scaling": scaling}).scaling
    assert (found.min, found.max) == (least, most)


def test_capabilities_are_the_endpoints_that_it_answers(tiny: dict[str, Any]) -> None:
    def kinds(**capabilities: bool) -> Definition:
        return read({**tiny, "capabilities": capabilities})

    assert kinds().kinds == ("chat", "completions")
    assert kinds(embeddings=True).kinds == ("embeddings",)
    assert kinds(embeddings=True).profiles[0].run.embeddings is True
    assert kinds(completions=False).kinds == ("chat",)
    assert kinds(embeddings=True, chat=True).kinds == ("chat", "embeddings")


@pytest.mark.parametrize(
    ("source", "normal"),
    [
        ("/weights/a b.gguf", "path:/weights/a b.gguf"),
        ("path:/weights/a.gguf", "path:/weights/a.gguf"),
        ("https://example.com/a.gguf?x=1", "https://example.com/a.gguf?x=1"),
        ("hf:Qwen/Qwen2.5-GGUF/sub/q4.gguf@main", "hf:Qwen/Qwen2.5-GGUF/sub/q4.gguf@main"),
        ("starter:tiny", "starter:tiny"),
    ],
)
def test_sources(tiny: dict[str, Any], source: str, normal: str) -> None:
    assert read({**tiny, "source": source}).source == normal


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("weights/a/b.gguf", "must be an absolute path"),
        ("path:weights", "must be an absolute path"),
        ("/weights/../etc/passwd", "without .."),
        ("hf:owner/repo/../../x", "hf:owner/repository/file"),
        ("hf:owner/repo", "hf:owner/repo/FILE.gguf"),
        ("Qwen/Qwen3-Embedding-4B", "hf:Qwen/Qwen3-Embedding-4B/FILE.gguf"),
        ("starter:huge", "tiny"),
        ("http://example.com/a.gguf", "give its sha256 too"),
        ("https://example.com/", "names no file"),
        ("hf:owner/repo/a+b.gguf", "hf:owner/repository/file"),
        ("https://me:secret@example.com/a.gguf", "name or password in it"),
        ("https://", "not an address"),
        ("s3://bucket/a.gguf", "must be an absolute path"),
        ("", "source is empty"),
    ],
)
def test_sources_that_are_none(tiny: dict[str, Any], source: str, said: str) -> None:
    found = sentences({**tiny, "source": source})
    assert said in found
    assert "secret" not in found


def test_an_address_in_clear_needs_its_checksum(tiny: dict[str, Any]) -> None:
    mirror = {**tiny, "source": "http://models.internal:8081/m/2026-03/q4_k_m.gguf", "sha256": "a" * 64}
    assert read(mirror).source.startswith("http://")
    profile = {"name": "cpu", "engine": "llamacpp", "source": mirror["source"]}
    assert "give its sha256 too" in sentences({**mirror, "profiles": [profile]})


@given(
    st.text(max_size=60) | st.from_regex(r"(hf:|path:/|https://h/|starter:|/)[a-zA-Z0-9./@_+ -]{0,40}", fullmatch=True)
)
def test_every_source_that_is_let_in_can_be_read_by_an_agent(text: str) -> None:
    found = normal(text)
    if isinstance(found, str):
        assert isinstance(agent_source.read(found), (LocalFile, Starter, Download))


def test_the_starters_are_definitions_like_any_other() -> None:
    for name in ("tiny", "qwen2.5-0.5b", "hf:owner/repo-GGUF/dir/My_Model.Q4_0.gguf@abc"):
        found = starter(name)
        assert read(written(found)) == found
        assert found.scaling.min == 1
    assert starter("hf:o/r/My_Model.Q4_0.gguf").name == "my_model.q4_0"
    for name in ("huge", "hf:owner/repo", "hf:owner/repo/readme.md"):
        with pytest.raises(Invalid):
            starter(name)


def test_what_differs_is_named() -> None:
    before = read(yaml.safe_load(FULL))
    after = read({**written(before), "context_length": 1024, "max_output": 512, "aliases": []})
    assert set(changed_keys(before, after)) == {"context_length", "max_output", "aliases"}
