"""A profile over several cards and nodes, as people write it, and back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.wire.shard import Profile
from catalog.core.reading import read
from catalog.core.writing import written
from llmgw.cluster.errors import Invalid


def definition(**profile: Any) -> dict[str, Any]:
    full = {"name": "p", "engine": "vllm", "gpu_class": "h100-80g", **profile}
    given = {k: v for k, v in full.items() if v is not None}
    return {"name": "m", "source": "path:/models/m", "scaling": {"min": 1}, "profiles": [given]}


def of(**profile: Any) -> Profile:
    return read(definition(**profile)).profiles[0].run


def sentences(**profile: Any) -> str:
    with pytest.raises(Invalid) as refused:
        read(definition(**profile))
    return "\n".join(p.sentence for p in refused.value.problems)


def spread(run: Profile) -> tuple[int | None, int | None, int, int]:
    return run.tp, run.pp, run.gpus, run.nodes


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ({}, (None, None, 1, 1)),
        ({"tp": 4}, (4, None, 4, 1)),
        ({"tp": 2, "pp": 2}, (2, 2, 4, 1)),
        ({"gpus": 4}, (None, None, 4, 1)),
        ({"gpus_per_node": 4}, (None, None, 4, 1)),
        ({"gpus": 4, "tp": 2}, (2, None, 4, 1)),
        ({"nodes": 2, "tp": 8}, (8, None, 4, 2)),
        ({"nodes": 2, "gpus_per_node": 8, "tp": 8, "pp": 2, "executor": "ray"}, (8, 2, 8, 2)),
        ({"nodes": 2, "gpus_per_node": 8}, (None, None, 8, 2)),
        ({"gpu_class": None, "gpu": {"min_memory_gb": 40}}, (None, None, 1, 1)),
        ({"gpu_class": None, "gpu": {"min_compute_capability": 8.9}, "tp": 2}, (2, None, 2, 1)),
    ],
)
def test_what_is_written_is_read_and_written_again(profile: dict[str, Any], expected: tuple[Any, ...]) -> None:
    found = read(definition(**profile))
    assert spread(found.profiles[0].run) == expected
    assert read(written(found)) == found


def test_cards_by_what_they_need() -> None:
    run = of(gpu_class=None, gpu={"min_compute_capability": 8.9, "min_memory_gb": 40})
    assert (run.gpu_min_capability, run.gpu_min_memory_bytes) == (8.9, 40 * 2**30)


def test_requests_at_once_are_the_engines_own_where_nobody_says() -> None:
    assert of().parallel == 64
    assert of(engine="llamacpp").parallel == 1
    assert of(parallel=1).parallel == 1
    for parallel in (None, 1, 64, 7):
        found = read(definition(parallel=parallel))
        assert read(written(found)) == found


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        ({"tp": 0}, "tp must be between 1 and 1024, and is 0"),
        ({"nodes": 65}, "nodes must be between 1 and 64, and is 65"),
        ({"gpus": 2, "gpus_per_node": 4}, "gpus (2) and gpus_per_node (4) are one figure"),
        ({"gpus": 3, "tp": 2}, "tp: 2 times pp: 1 is 2, and the profile has 3 cards"),
        ({"tp": 3, "nodes": 2}, "tp: 3 times pp: 1 is 3, and the profile has 2 cards on each of 2 nodes"),
        ({"gpu": {"min_memory_gb": 40}}, "by gpu_class or by gpu, not by both"),
        ({"gpu_class": None, "gpu": {}}, "gpu says what a card must have"),
        ({"gpu_class": None, "gpu": {"min_memory": 4}}, "did you mean min_memory_gb?"),
        ({"gpu_class": None, "gpu": {"min_compute_capability": "new"}}, "min_compute_capability must be a number"),
        ({"gpu_class": None}, "vLLM runs on GPUs"),
        ({"executor": "slurm", "nodes": 2}, "vLLM has no executor 'slurm': it has mp and ray"),
        ({"engine": "trtllm", "nodes": 2}, "MPI or Slurm"),
        ({"engine": "llamacpp", "nodes": 2}, "llama.cpp runs on one node"),
        ({"args": ["--trust-remote-code"]}, "--trust-remote-code is refused: it loads code"),
        ({"args": ["--tensor_parallel_size", "2"]}, "set tp in the profile instead"),
        ({"args": ["--max-model-len=4096"]}, "set context_length in the model instead"),
        ({"env": {"VLLM_API_KEY": "x"}}, "'VLLM_API_KEY' is refused"),
        ({"engine": "vlm"}, "there is no engine vlm; there are llamacpp, sglang, trtllm, vllm"),
    ],
)
def test_each_refusal_is_one_sentence(profile: dict[str, Any], said: str) -> None:
    assert said in sentences(**profile)


def test_every_problem_is_named_at_once() -> None:
    said = sentences(tp=3, gpus=2, executor="x", args=["--host", "x"], env={"PATH": "/"})
    assert len(said.splitlines()) == 4


def test_the_example_of_the_page_is_read() -> None:
    """An example that nobody ever loaded is a guess."""
    page = (Path(__file__).parents[2] / "docs/engines.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", page, re.S)
    found = read(yaml.safe_load(example))
    assert [spread(p.run) for p in found.profiles] == [(4, None, 4, 1), (8, 2, 8, 2), (None, None, 2, 1)]
    assert [p.run.parallel for p in found.profiles] == [128, 64, 1]
    assert read(written(found)) == found
