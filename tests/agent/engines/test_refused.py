"""What a profile may not hand to an engine: every refused flag in every spelling that the engine would understand."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.engines import ENGINES, sglang, trtllm, vllm
from agent.engines.rules import changes_what_runs
from tests.agent.engines.profiles import PATHS, shard

MODULES: dict[str, ModuleType] = {"vllm": vllm, "sglang": sglang, "trtllm": trtllm}


def codes(engine: str, **profile: Any) -> list[str]:
    return [p.code for p in ENGINES[engine].problems(shard(engine, **profile).profile, None)]


@st.composite
def spellings(draw: st.DrawFn) -> tuple[str, list[str]]:
    """(engine, arguments): a refused flag as people, and as people who want it past us, may write it."""
    engine = draw(st.sampled_from(sorted(MODULES)))
    refused, known = MODULES[engine]._REFUSED, MODULES[engine]._KNOWN
    flag = draw(st.sampled_from(sorted(refused)))
    written = flag
    if flag.startswith("--"):
        written = "".join(draw(st.sampled_from((c, "_"))) if c == "-" else c for c in flag[2:])
        written = "--" + "".join(draw(st.sampled_from((c, c.upper()))) for c in written)
        if draw(st.booleans()):
            cut = draw(st.integers(min_value=3, max_value=len(flag)))
            short = flag[:cut]
            if short not in known:
                written = short
        if draw(st.booleans()):
            written += ".key"
    value = draw(st.text(max_size=8).filter(lambda v: not v.startswith("-")))
    return engine, [f"{written}={value}"] if draw(st.booleans()) else [written, value]


@given(spellings(), st.lists(st.sampled_from(("--enforce-eager", "0.9", "--seed", "7")), max_size=3))
@settings(max_examples=200, deadline=None)
def test_a_refused_flag_is_refused_in_any_spelling(spelling: tuple[str, list[str]], before: list[str]) -> None:
    engine, args = spelling
    assert "flag_refused" in codes(engine, args=(*before, *args))


@pytest.mark.parametrize(
    ("engine", "args"),
    [
        ("vllm", ("-n2",)),
        ("vllm", ("-r", "1")),
        ("vllm", ("--", "other-model")),
        ("vllm", ("--seed", "1\0")),
        ("vllm", ("--speculative-config", '{"model": "x", "trust_remote_code": true}')),
        ("vllm", ("--speculative-config.trust_remote_code", "true")),
        ("vllm", ("--additional-config", '{"plugin": "x"}')),
        ("vllm", ('--hf-overrides={"auto_map": 1, "scheduler_cls": "x"}',)),
        ("trtllm", ("--set", "trust_remote_code=true")),
        ("trtllm", ("--set=kv_connector_config.connector_module=os",)),
        ("trtllm", ("--set", "return_perf_metrics=false")),
        ("trtllm", ("--set", " Model=/etc")),
        ("trtllm", ("--se", "model=/etc")),
    ],
)
def test_ways_around(engine: str, args: tuple[str, ...]) -> None:
    assert "flag_refused" in codes(engine, args=args)


@pytest.mark.parametrize(
    ("engine", "args"),
    [
        ("vllm", ("--gpu-memory-utilization", "0.9", "--enforce-eager", "-q", "awq", "--kv-cache-dtype", "auto")),
        ("vllm", ("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3")),
        ("vllm", ("--max-loras", "4", "--max-lora-rank", "64", "--tokenizer-mode", "mistral", "-O3")),
        ("vllm", ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 4}')),
        ("vllm", ("--chat-template-content-format", "openai", "--model-impl", "transformers", "--dtype", "half")),
        ("vllm", ("--max-num-batched-tokens", "8192", "--swap-space", "4", "--runner", "pooling")),
        ("sglang", ("--mem-fraction-static", "0.8", "--chunked-prefill-size", "4096", "--tool-call-parser", "qwen25")),
        ("sglang", ("--quantization", "awq", "--attention-backend", "fa3", "--log-requests-level", "1")),
        ("trtllm", ("--max_batch_size", "64", "--free_gpu_memory_fraction", "0.85", "--max_num_tokens", "8192")),
        ("trtllm", ("--set", "kv_cache_config.enable_block_reuse=false", "--tool_parser", "qwen3")),
    ],
)
def test_what_tunes_an_engine_passes(engine: str, args: tuple[str, ...]) -> None:
    assert codes(engine, args=args) == []


FOREIGN = (
    "LD_PRELOAD",
    "PATH",
    "PYTHONPATH",
    "BASH_ENV",
    "HTTPS_PROXY",
    "HF_TOKEN",
    "LLMGW_ENGINE_KEY",
    "NCCL_NET_PLUGIN",
)
OWN = {
    "vllm": ("VLLM_API_KEY", "VLLM_HOST_IP", "VLLM_PLUGINS", "VLLM_SERVER_DEV_MODE", "VLLM_NCCL_SO_PATH"),
    "sglang": ("SGLANG_API_KEY", "SGLANG_EXTERNAL_MODEL_PACKAGE", "SGLANG_HOST_IP", "SGLANG_USE_MODELSCOPE"),
    "trtllm": ("TRTLLM_NO_USAGE_STATS", "TLLM_SPAWN_PROXY_PROCESS", "TRTLLM_ENABLE_RENDER_ENDPOINTS"),
}
NCCL = ("NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NCCL_TOPO_FILE", "CUDA_HOME")
RAY = ("RAY_ADDRESS", "RAY_AUTH_TOKEN", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "FLASHINFER_CUBIN_DIR")


@pytest.mark.parametrize(
    ("engine", "name"), [(engine, name) for engine in OWN for name in (*FOREIGN, *NCCL, *RAY, *OWN[engine])]
)
def test_environment_is_refused_and_dropped_at_launch(engine: str, name: str) -> None:
    assert codes(engine, env={name: "planted"}) == ["environment_refused"]
    spec = shard(engine, env={name: "planted"})
    for command in ENGINES[engine].commands(spec, PATHS[engine], "10.0.0.1"):
        assert "planted" not in command.env.values()


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        ("vllm", "VLLM_LOGGING_LEVEL"),
        ("vllm", "VLLM_USE_DEEP_GEMM"),
        ("sglang", "SGLANG_ENABLE_JIT_DEEPGEMM"),
        ("trtllm", "TRTLLM_ENABLE_PDL"),
        ("trtllm", "TLLM_LOG_LEVEL"),
        ("vllm", "NCCL_DEBUG"),
        ("sglang", "NCCL_IB_QPS_PER_CONNECTION"),
        ("vllm", "PYTORCH_CUDA_ALLOC_CONF"),
        ("vllm", "CUDA_LAUNCH_BLOCKING"),
    ],
)
def test_the_engines_own_families_pass(engine: str, name: str) -> None:
    assert codes(engine, env={name: "1"}) == []
    assert ENGINES[engine].commands(shard(engine, env={name: "1"}), PATHS[engine], "h")[0].env[name] == "1"


@pytest.mark.parametrize("engine", sorted(OWN))
def test_what_llmgw_sets_itself_passes_the_last_look_at_launch(engine: str) -> None:
    """What changes what runs is dropped there whoever set it: nothing of ours may be named so."""
    for command in ENGINES[engine].commands(shard(engine), PATHS[engine], "h"):
        assert not [name for name in command.env if changes_what_runs(name)]
