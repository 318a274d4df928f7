"""What must add up before an engine is started; every reason, and the sentences that people read."""

from __future__ import annotations

from typing import Any

import pytest

from agent.engine import ModelFacts
from agent.engines import ENGINES, arithmetic
from agent.wire.facts import EngineFacts, GpuFacts, NodeFacts
from agent.wire.reason import Reason
from agent.wire.shard import Profile

KV8 = ModelFacts(kv_heads=8, attention_heads=64, layers=80)
MIG = "a100-80g-mig-3g.40gb"


def profile(engine: str = "vllm", gpus: int = 1, **more: Any) -> Profile:
    return Profile("p", engine, gpus=gpus, **{"gpu_class": "h100-80g", **more})


def gpu(index: int, gpu_class: str = "h100-80g", capability: str | None = "9.0", **more: Any) -> GpuFacts:
    return GpuFacts(index, gpu_class=gpu_class, compute_capability=capability, memory_bytes=80 * 2**30, **more)


def node(*gpus: GpuFacts, **more: Any) -> NodeFacts:
    return NodeFacts(gpus=gpus, **more)


def said(wanted: Profile, facts: NodeFacts | None = None, model: ModelFacts | None = None) -> dict[str, str]:
    found: tuple[Reason, ...] = ENGINES[wanted.engine].problems(wanted, facts, model)
    return {p.code: p.sentence for p in found}


@pytest.mark.parametrize(
    ("wanted", "ways"),
    [
        (profile(), (1, 1)),
        (profile(gpus=4), (4, 1)),
        (profile(gpus=4, tp=2), (2, 2)),
        (profile(gpus=4, pp=2), (2, 2)),
        (profile(gpus=8, nodes=2), (8, 2)),
        (profile(gpus=8, nodes=2, tp=16), (16, 1)),
        (profile(gpus=8, nodes=2, pp=4), (4, 4)),
        (profile(gpus=8, nodes=2, tp=4, pp=4), (4, 4)),
        (profile(gpus=0, gpu_class=None), (1, 1)),
    ],
)
def test_ways_that_nobody_wrote(wanted: Profile, ways: tuple[int, int]) -> None:
    assert arithmetic.ways(wanted) == ways


@pytest.mark.parametrize("gpus", range(1, 9))
@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_ways_that_nobody_wrote_add_up(gpus: int, nodes: int) -> None:
    assert said(profile(gpus=gpus, nodes=nodes)) == {}


@pytest.mark.parametrize(
    ("wanted", "code", "words"),
    [
        (profile(gpus=4, tp=3), "ways_do_not_add_up", "tp: 3 times pp: 1 is 3, and the profile has 4 cards"),
        (profile(gpus=2, tp=4), "ways_do_not_add_up", "together they must be 2"),
        (profile(gpus=4, nodes=2, tp=4, pp=1), "ways_do_not_add_up", "4 cards on each of 2 nodes"),
        (profile(parallel=0), "bad_parallel", "parallel must be at least 1"),
        (profile(context_length=0), "bad_context_length", "context_length must be at least 1"),
        (profile(tp=0), "bad_ways", "tp must be at least 1"),
        (profile(gpus=0, gpu_class=None), "gpu_needed", "vLLM runs on GPUs"),
        (profile("sglang", 0, gpu_class=None), "gpu_needed", "SGLang runs on GPUs"),
        (profile("trtllm", 0, gpu_class=None), "gpu_needed", "TensorRT-LLM runs on GPUs"),
        (profile(executor="slurm", gpus=2, nodes=2), "executor_unknown", "it has mp and ray"),
        (profile("sglang", executor="ray", gpus=2, nodes=2), "executor_unknown", "only one way"),
        (profile(executor="ray"), "executor_unknown", "ties several nodes together"),
        (profile("trtllm", nodes=2), "one_node", "MPI or Slurm"),
        (profile("llamacpp", nodes=2), "one_node", "llama.cpp runs on one node, and nodes: 2 was asked for"),
        (profile("llamacpp", 2, tp=2), "tensor_parallel_refused", "splits a model by layers"),
        (profile("llamacpp", 2, pp=2), "tensor_parallel_refused", "say gpus: N"),
        (profile("trtllm", embeddings=True), "embeddings_refused", "serves no embeddings"),
        (profile(gpus=2, gpu_class=MIG), "mig_one", "gpus: 2 was asked for"),
        (profile(gpu_class=MIG, nodes=2), "mig_one", "nodes: 2 was asked for"),
        (profile(gpu_class=MIG, tp=2), "mig_one", "tp: 2 was asked for"),
        (profile("llamacpp", 2, gpu_class=MIG), "mig_one", "choose a larger profile or whole cards"),
    ],
)
def test_what_does_not_add_up(wanted: Profile, code: str, words: str) -> None:
    found = said(wanted)
    assert list(found) == [code]
    assert words in found[code]


def test_one_instance_is_fine() -> None:
    assert said(profile(gpu_class=MIG, tp=1)) == {}


@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16])
def test_ways_that_a_model_with_8_kv_heads_splits(tp: int) -> None:
    assert said(profile(gpus=tp, tp=tp), None, KV8) == {}


@pytest.mark.parametrize("tp", [3, 5, 6, 7, 12])
def test_ways_that_it_does_not(tp: int) -> None:
    found = said(profile(gpus=tp, tp=tp), None, KV8)
    assert found == {
        "kv_heads": f"tensor parallel splits 2, 4, 8 or 16 ways, and not {tp}: its 8 KV heads must divide tp or be "
        "divided by it"
    }


def test_attention_heads_must_split_too() -> None:
    found = said(profile(gpus=4, tp=4), None, ModelFacts(kv_heads=2, attention_heads=14))
    assert found == {"attention_heads": "the model's 14 attention heads cannot be split 4 ways by tp"}


def test_no_more_stages_than_layers() -> None:
    assert list(said(profile(gpus=4, tp=1, pp=4), None, ModelFacts(layers=2))) == ["too_few_layers"]


def test_what_nobody_knows_is_not_refused() -> None:
    assert said(profile(gpus=3, tp=3), None, ModelFacts()) == {}
    assert said(profile(), NodeFacts()) == {}
    assert said(profile(args=("--quantization", "fp8")), node(gpu(0, capability=None))) == {}
    assert said(profile("trtllm"), node(gpu(0, capability="unheard of"))) == {}


@pytest.mark.parametrize(
    ("args", "model"),
    [
        (("--quantization", "fp8"), None),
        (("-q", "fp8"), None),
        (("--quantization=modelopt_fp8",), None),
        (("--kv_cache_dtype", "fp8_e4m3"), None),
        ((), ModelFacts(quantization="fp8")),
    ],
)
def test_fp8_below_ada(args: tuple[str, ...], model: ModelFacts | None) -> None:
    wanted = profile(gpu_class="a100-80g", args=args)
    found = said(wanted, node(gpu(0, "a100-80g", "8.0")), model)
    assert found == {"fp8_unsupported": "fp8 is computed on compute capability 8.9 or newer, and these cards have 8"}
    assert said(profile(args=args), node(gpu(0)), model) == {}
    assert said(profile(gpu_class="l40s-45g", args=args), node(gpu(0, "l40s-45g", "8.9")), model) == {}


@pytest.mark.parametrize(
    ("engine", "capability", "refused"),
    [
        ("vllm", "6.1", True),
        ("vllm", "7.0", False),
        ("sglang", "7.0", True),
        ("trtllm", "7.5", True),
        ("trtllm", "8.0", False),
    ],
)
def test_cards_that_an_engine_has_no_kernels_for(engine: str, capability: str, refused: bool) -> None:
    found = said(profile(engine, gpu_class="old-16g"), node(gpu(0, "old-16g", capability)))
    assert list(found) == (["compute_capability"] if refused else [])


def test_llama_cpp_takes_any_card() -> None:
    assert said(profile("llamacpp", gpu_class="p40-24g"), node(gpu(0, "p40-24g", "6.1"))) == {}


def test_cards_of_several_classes_are_no_group() -> None:
    wanted = profile(gpus=2, gpu_class=None, gpu_min_capability=8.0)
    found = said(wanted, node(gpu(0, "h100-80g"), gpu(1, "a100-80g", "8.0")))
    assert found == {
        "gpus_mixed": "a replica runs on cards of one class, 2 of them were asked for, and there are "
        "1 × a100-80g, 1 × h100-80g"
    }
    assert said(wanted, node(gpu(0), gpu(1, "a100-80g", "8.0"), gpu(2))) == {}


def test_cards_that_do_not_meet_the_requirement_are_not_counted() -> None:
    """Too few of them is for placement to say, which knows what is taken."""
    wanted = profile(gpus=2, gpu_class=None, gpu_min_memory_bytes=60 * 2**30)
    assert said(wanted, node(gpu(0), gpu(1, problem="it fell off the bus"))) == {}


@pytest.mark.parametrize(
    ("args", "refused"),
    [
        ((), True),
        (("--hf-overrides", '{"rope_scaling": {"rope_type": "yarn"}}'), False),
        (("--rope-scaling", "yarn"), False),
    ],
)
def test_a_context_longer_than_the_model_was_trained_for(args: tuple[str, ...], refused: bool) -> None:
    found = said(profile(context_length=65536, args=args), None, ModelFacts(trained_context=32768))
    assert list(found) == (["context_too_long"] if refused else [])
    assert said(profile(context_length=32768), None, ModelFacts(trained_context=32768)) == {}


@pytest.mark.parametrize(
    ("address", "refused"),
    [
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("172.32.0.1", True),
        ("192.168.7.7", False),
        ("127.0.0.1", False),
        ("8.8.8.8", True),
        ("100.64.0.1", True),
        ("fd12::1", False),
        ("fe80::1%eth0", False),
        ("2001:db8::1", True),
        ("::ffff:10.0.0.1", False),
        ("::ffff:8.8.8.8", True),
        ("gpu01.example.org", False),
    ],
)
def test_ray_only_where_nobody_else_reaches_it(address: str, refused: bool) -> None:
    wanted = profile(gpus=4, nodes=2, tp=4, pp=2, executor="ray")
    found = said(wanted, NodeFacts(address=address))
    assert list(found) == (["ray_exposed"] if refused else [])
    assert said(profile(gpus=4, nodes=2, executor="mp"), NodeFacts(address=address)) == {}


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_what_a_node_must_have(engine: str) -> None:
    wanted = profile(engine)
    assert list(said(wanted, NodeFacts(engines=()))) == ["engine_missing"]
    found = said(wanted, NodeFacts(engines=(EngineFacts(engine, problem="no libcuda.so.1"),)))
    assert list(found) == ["engine_unusable"]
    assert "no libcuda.so.1" in found["engine_unusable"]
    assert said(wanted, NodeFacts(engines=(EngineFacts(engine),))) == {}


@pytest.mark.parametrize(
    ("version", "refused"),
    [("1.2.0", True), ("1.3.0rc13", False), ("1.4.0", False), ("0.20.1", True), (None, False), ("main", False)],
)
def test_tensorrt_llm_before_1_3(version: str | None, refused: bool) -> None:
    facts = NodeFacts(engines=(EngineFacts("trtllm", version=version),))
    assert list(said(profile("trtllm"), facts)) == (["engine_too_old"] if refused else [])


def test_another_number_of_cards() -> None:
    vllm, llamacpp = ENGINES["vllm"], ENGINES["llamacpp"]
    assert vllm.on_cards(profile(gpus=2, tp=2), 4).tp == 4
    assert vllm.on_cards(profile(gpus=2), 4) == profile(gpus=4)
    assert vllm.on_cards(profile(gpus=4, tp=2, pp=2), 8).tp == 4
    split = profile("llamacpp", 2, args=("--tensor-split", "3,1", "--flash-attn", "on", "-mg=1", "-ts", "1,1"))
    assert llamacpp.on_cards(split, 3) == profile("llamacpp", 3, args=("--flash-attn", "on"))
