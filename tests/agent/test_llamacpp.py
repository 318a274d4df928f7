"""llama.cpp as an engine: what it is started with, and what no definition may hand it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from agent.core import environment
from agent.engine import Command, Paths
from agent.engines import ENGINES
from agent.engines.llamacpp import LlamaCpp
from agent.wire.facts import EngineFacts, NodeFacts
from agent.wire.shard import Profile, ShardSpec, Source

ENGINE = LlamaCpp()
GOLDEN = Path(__file__).parent / "golden" / "commands"
WHEEL = Paths("/w/tiny.gguf", "/opt/venv/bin/python3.11", "/scratch")
BINARY = Paths("/w/tiny.gguf", "/opt/llama.cpp/llama-server", "/scratch")


def spec(devices: tuple[int, ...] = (), **profile: object) -> ShardSpec:
    values = {"context_length": 4096, "parallel": 4, "cpu_cores": 2, **profile}
    return ShardSpec(
        "r-1.0",
        "r-1",
        "tiny",
        Profile("p", "llamacpp", **values),
        Source("starter:tiny"),
        9100,
        "the-key",
        devices=devices,  # type: ignore[arg-type]
    )


CASES = {
    "wheel_cpu": (spec(), WHEEL),
    "executable_cpu": (spec(), BINARY),
    "defaults": (spec(context_length=None, parallel=1, cpu_cores=None), BINARY),
    "sharing": (spec(cpu_cores=None), replace(WHEEL, cores=3)),
    "sharing_own_wait": (spec(cpu_cores=None, env={"OMP_WAIT_POLICY": "active"}), BINARY),
    "named_beside_others": (spec(cpu_cores=2), replace(BINARY, cores=1)),
    "one_card": (spec((1,), gpus=1), BINARY),
    "reserved_memory": (spec(memory_bytes=2 * 2**30), WHEEL),
    "reserved_memory_own_cache": (spec(memory_bytes=2 * 2**30, args=("-cram", "7")), BINARY),
    "two_cards": (spec((0, 3), gpus=2, args=("--flash-attn", "on"), env={"GGML_CUDA_FORCE_MMQ": "1"}), BINARY),
    "own_layers": (spec((0,), gpus=1, args=("-ngl", "20")), BINARY),
    "embeddings": (spec(embeddings=True, context_length=512, parallel=2), WHEEL),
    "embeddings_own_batch": (spec(embeddings=True, args=("--ubatch-size", "1024")), WHEEL),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_command_is_the_golden_one(name: str) -> None:
    shard, paths = CASES[name]
    (command,) = ENGINE.commands(shard, paths, "10.0.0.2")
    assert {"argv": list(command.argv), "env": command.env} == json.loads((GOLDEN / f"{name}.json").read_bytes())
    assert command.secret_env == {"LLAMA_API_KEY": "the-key"}


@pytest.mark.parametrize("name", sorted(CASES))
def test_what_llmgw_builds_it_does_not_refuse(name: str) -> None:
    assert ENGINE.problems(CASES[name][0].profile, None) == ()


def test_the_key_is_nowhere_that_others_can_read() -> None:
    (command,) = ENGINE.commands(spec(), WHEEL, "127.0.0.1")
    assert "the-key" not in " ".join(command.argv)
    assert "the-key" not in str(command.env)


@pytest.mark.parametrize(
    "args",
    [
        ("--host", "0.0.0.0"),
        ("--host=0.0.0.0",),
        ("--port", "1"),
        ("--api-key", "x"),
        ("--api_key=x",),
        ("--API-KEY", "x"),
        ("--api-key-file", "/etc/shadow"),
        ("--model", "/etc/passwd"),
        ("-m", "x"),
        ("-m=x",),
        ("--alias", "gpt"),
        ("-a", "gpt"),
        ("--metrics",),
        ("--no-jinja",),
        ("-c", "1"),
        ("--ctx-size", "1"),
        ("--ctx_size", "1"),
        ("-np", "2"),
        ("-t", "64"),
        ("--embedding",),
        ("-hf", "a/b"),
        ("--model-url", "https://x"),
        ("--rpc", "10.0.0.1:50052"),
        ("--tools", "all"),
        ("--path", "/"),
        ("--slot-save-path", "/etc"),
        ("--log-file", "/etc/cron.d/x"),
        ("--tensor-parallel-size", "2"),
        ("--nnodes", "2"),
        ("--split-mode", "row"),
        ("-sm", "tensor"),
        ("--split-mode=row",),
        ("--temp", "0", "--host", "::"),
    ],
)
def test_refused_arguments(args: tuple[str, ...]) -> None:
    problems = ENGINE.problems(spec(args=args).profile, None)
    assert [p.code in ("flag_refused", "tensor_parallel_refused") for p in problems] == [True]


@pytest.mark.parametrize(
    "name",
    [
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "ld_preload",
        "PATH",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "BASH_ENV",
        "BASH_FUNC_x%%",
        "ENV",
        "IFS",
        "HOME",
        "LLMGW_SHARD",
        "HTTPS_PROXY",
        "CUDA_INJECTION64_PATH",
        "CUDA_VISIBLE_DEVICES",
        "GGML_BACKEND_PATH",
        "GGML_BACKEND_DL",
        "OMP_TOOL_LIBRARIES",
        "LLAMA_ARG_HOST",
        "LLAMA_API_KEY",
        "LLAMA_ARG_API_KEY",
        "LLAMA_CACHE",
        "HF_TOKEN",
        "ANYTHING_ELSE",
        "GGML_A=B",
        "",
    ],
)
def test_refused_environment_is_dropped_at_launch_too(name: str) -> None:
    shard = spec(env={name: "x", "GGML_CUDA_FORCE_MMQ": "1"})
    problems = ENGINE.problems(shard.profile, None)
    assert [p.code for p in problems] == ["environment_refused"]
    (command,) = ENGINE.commands(shard, WHEEL, "127.0.0.1")
    assert command.env["GGML_CUDA_FORCE_MMQ"] == "1"
    assert command.env.get(name) != "x"


@pytest.mark.parametrize("name", ["GGML_CUDA_NO_PINNED", "LLAMA_SET_ROWS", "CUDA_LAUNCH_BLOCKING", "OMP_NUM_THREADS"])
def test_the_engines_own_families_pass(name: str) -> None:
    shard = spec(env={name: "1"})
    assert ENGINE.problems(shard.profile, None) == ()
    assert ENGINE.commands(shard, WHEEL, "127.0.0.1")[0].env[name] == "1"


def test_every_problem_is_named_at_once() -> None:
    profile = replace(spec().profile, args=("--host", "x", "--port", "1"), env={"PATH": "/"}, parallel=0)
    codes = [p.code for p in ENGINE.problems(profile, None)]
    assert codes == ["flag_refused", "flag_refused", "environment_refused", "bad_parallel"]


def test_what_a_node_must_have() -> None:
    def codes(engines: tuple[EngineFacts, ...] | None) -> list[str]:
        return [p.code for p in ENGINE.problems(spec().profile, NodeFacts(engines=engines))]

    assert codes(None) == []  # unknown is not absent
    assert codes(()) == ["engine_missing"]
    assert codes((EngineFacts("vllm"),)) == ["engine_missing"]
    assert codes((EngineFacts("llamacpp", problem="no AVX2"),)) == ["engine_unusable"]
    assert codes((EngineFacts("llamacpp"),)) == []


def test_the_registry_knows_it() -> None:
    assert ENGINES["llamacpp"].name == "llamacpp"
    assert ENGINES["llamacpp"].metrics(None).running == "llamacpp:requests_processing"
    assert ENGINES["llamacpp"].capabilities.tensor_parallel is False


def test_an_engines_environment_is_built_from_nothing() -> None:
    agent = {
        "PATH": "/home/somebody/bin",
        "LD_PRELOAD": "/evil.so",
        "AWS_SECRET_ACCESS_KEY": "s",
        "HF_TOKEN": "t",
        "LANG": "C.UTF-8",
        "PYTHONPATH": "/x",
    }
    command = Command(("x",), {"GGML_A": "1", "PYTHONHOME": "/evil", "LD_AUDIT": "/evil.so"}, {"LLAMA_API_KEY": "k"})
    found = environment.for_engine(agent, command, mark="h/s/l", scratch="/scratch", import_from=None)
    assert found == {
        "LANG": "C.UTF-8",
        "GGML_A": "1",
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/scratch",
        "TMPDIR": "/scratch",
        "LLAMA_API_KEY": "k",
        "LLMGW_SHARD": "h/s/l",
    }


@pytest.mark.parametrize(
    ("executable", "last"), [("/opt/vllm/bin/vllm", "/opt/vllm/bin"), ("vllm", "/bin"), ("/a:b/vllm", "/bin")]
)
def test_an_engine_finds_the_tools_of_its_own_environment(executable: str, last: str) -> None:
    found = environment.for_engine({}, Command((executable,)), mark="m", scratch="/s", import_from=None)
    assert found["PATH"].split(":")[0] == "/usr/local/sbin"
    assert found["PATH"].split(":")[-1] == last
