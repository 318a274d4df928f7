"""What a model's own files say, held against what a profile asks of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import starter
from agent.engine import ModelFacts
from agent.engines import model_facts
from catalog import sources
from catalog.core.reading import read

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "num_hidden_layers": 80,
    "max_position_embeddings": 131072,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192},
}


def of(**config: Any) -> ModelFacts:
    found = model_facts.of_config(json.dumps(config).encode())
    assert found is not None
    return found


def test_a_config_of_today() -> None:
    assert of(**LLAMA) == ModelFacts(8, 64, 80, None, 131072, None, "LlamaForCausalLM")


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"n_head": 12, "n_layer": 12, "n_positions": 1024}, ModelFacts(12, 12, 12, None, 1024)),
        ({"n_head": 71, "multi_query": True}, ModelFacts(1, 71)),
        ({"num_attention_heads": 128, "num_key_value_heads": 128, "kv_lora_rank": 512}, ModelFacts(None, 128)),
        ({"text_config": {"num_attention_heads": 16, "num_key_value_heads": 4}, "model_type": "v"},
         ModelFacts(4, 16, architecture="v")),
        ({"max_position_embeddings": 32768, "rope_scaling": {"type": "yarn", "factor": 4.0,
          "original_max_position_embeddings": 32768}}, ModelFacts(trained_context=131072)),
        ({"num_attention_heads": "many", "num_hidden_layers": True, "architectures": [7]}, ModelFacts()),
        ({}, ModelFacts()),
    ],
)  # fmt: skip
def test_other_configs(config: dict[str, Any], expected: ModelFacts) -> None:
    assert of(**config) == expected


@pytest.mark.parametrize(
    ("config", "quantization"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8"),
        ({"quant_method": "awq", "bits": 4}, "awq"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 8, "type": "float"}}}},
         "fp8"),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 4, "type": "int"}}}},
         "compressed-tensors"),
        ({"bits": 4}, None),
        ("fp8", None),
    ],
)  # fmt: skip
def test_how_its_weights_are_kept(config: Any, quantization: str | None) -> None:
    assert of(quantization_config=config).quantization == quantization


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b"[" * 5000])
def test_what_is_no_config(text: bytes) -> None:
    assert model_facts.of_config(text) is None


TINY = (Path(starter.__file__).parent / "tiny.gguf").read_bytes()


def test_a_gguf_file() -> None:
    assert model_facts.of_gguf(TINY) == ModelFacts(4, 4, 3, None, 2048, len(TINY), "llama", 1536)


@given(st.integers(0, 6000), st.binary(max_size=64))
def test_a_damaged_gguf_file_is_never_an_error(at: int, junk: bytes) -> None:
    model_facts.of_gguf(TINY[:at] + junk)
    model_facts.of_gguf(TINY[:at] + junk + TINY[at + len(junk) :])


def written(tmp_path: Path, config: dict[str, Any] | None = None) -> str:
    folder = tmp_path / "m"
    folder.mkdir()
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def said(source: str, engine: str = "vllm", context_length: int | None = None, **profile: Any) -> list[str]:
    raw = {"name": "m", "source": source, "context_length": context_length}
    full = {"name": "p", "engine": engine, **profile}
    return [p.sentence for p in sources.problems([read({**raw, "profiles": [full]})])]


def test_heads_that_do_not_split_are_said_when_the_model_is_added(tmp_path: Path) -> None:
    folder = written(tmp_path, LLAMA)
    assert said(folder, gpu_class="h100-80g", tp=4) == []
    (sentence,) = said(folder, gpu_class="h100-80g", tp=3)
    assert sentence.startswith("model m, profile p: tensor parallel splits 2, 4, 8 or 16 ways, and not 3")
    (sentence,) = said(folder, context_length=200000, gpu_class="h100-80g")
    assert "more than the 131072 tokens" in sentence


def test_an_engine_of_folders_is_given_one(tmp_path: Path) -> None:
    (sentence,) = said("starter:tiny", gpu_class="h100-80g")
    assert "starter:tiny is one file, and vllm loads a folder" in sentence
    (sentence,) = said(written(tmp_path), "sglang", gpu_class="h100-80g")
    assert "has no config.json" in sentence
    file = tmp_path / "m.gguf"
    file.write_bytes(TINY)
    (sentence,) = said(str(file), "trtllm", gpu_class="h100-80g")
    assert "is one file" in sentence
    assert said(str(file), "llamacpp") == []
    (sentence,) = said(str(file), "llamacpp", context_length=4096)
    assert "more than the 2048 tokens" in sentence
