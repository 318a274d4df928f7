"""What a model's own files say of it: a Hugging Face `config.json`, or the header of a GGUF file. Pure: bytes in."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, Protocol

from agent.engine import ModelFacts

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MOST_KEYS = 4096
_LONGEST = 1 << 20
_MOST_VALUES = 1 << 22


class Buffer(Protocol):
    """bytes, or a file mapped into memory."""

    def __len__(self) -> int: ...
    def __getitem__(self, key: slice, /) -> bytes: ...


def of_config(text: bytes, size_bytes: int | None = None) -> ModelFacts | None:
    """Of a `config.json`; None for what is none."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(whole, dict):
        return None
    inner = whole.get("text_config")
    language = {**whole, **inner} if isinstance(inner, dict) else whole
    heads = _whole(language, "num_attention_heads", "n_head", "num_heads")
    kv_heads = _whole(language, "num_key_value_heads", "num_kv_heads", "n_head_kv")
    if _whole(language, "kv_lora_rank") is not None:
        kv_heads = None  # one latent for all heads: every rank keeps it whole
    elif kv_heads is None:
        kv_heads = 1 if language.get("multi_query") is True else heads
    architectures = whole.get("architectures")
    named = architectures[0] if isinstance(architectures, list) and architectures else whole.get("model_type")
    layers = _whole(language, "num_hidden_layers", "n_layer", "num_layers")
    width = _whole(language, "head_dim") or _share(_whole(language, "hidden_size", "n_embd"), heads)
    return ModelFacts(
        kv_token_bytes=_kv_token(layers, kv_heads, width, width),
        kv_heads=kv_heads,
        attention_heads=heads,
        layers=layers,
        quantization=_quantization(whole.get("quantization_config") or language.get("quantization_config")),
        trained_context=_context(language),
        size_bytes=size_bytes,
        architecture=named if isinstance(named, str) else None,
    )


def of_gguf(data: Buffer) -> ModelFacts | None:
    """Of a GGUF file, of which only the header is read; None for what is none."""
    try:
        told = _metadata(data)
    except (struct.error, ValueError, UnicodeDecodeError):
        return None
    architecture = told.get("general.architecture")
    if not isinstance(architecture, str):
        return None
    heads = _whole(told, f"{architecture}.attention.head_count")
    kv_heads = _whole(told, f"{architecture}.attention.head_count_kv")
    if kv_heads is None and f"{architecture}.attention.head_count_kv" not in told:
        kv_heads = heads
    layers = _whole(told, f"{architecture}.block_count")
    width = _share(_whole(told, f"{architecture}.embedding_length"), heads)
    key = _whole(told, f"{architecture}.attention.key_length") or width
    value = _whole(told, f"{architecture}.attention.value_length") or width
    return ModelFacts(
        kv_token_bytes=_kv_token(layers, kv_heads, key, value),
        kv_heads=kv_heads,
        attention_heads=heads,
        layers=layers,
        trained_context=_whole(told, f"{architecture}.context_length"),
        size_bytes=len(data),
        architecture=architecture,
    )


def _whole(told: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = told.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _share(whole: int | None, parts: int | None) -> int | None:
    return whole // parts if whole and parts else None


def _kv_token(layers: int | None, kv_heads: int | None, key: int | None, value: int | None) -> int | None:
    """Bytes of all layers' keys and values of one token, two each."""
    if layers is None or kv_heads is None or key is None or value is None:
        return None
    return layers * kv_heads * (key + value) * 2


def _quantization(config: Any) -> str | None:
    """`fp8`, `awq`, …; `fp8` too where a general method says so in its details."""
    if not isinstance(config, dict):
        return None
    method = config.get("quant_method")
    details = json.dumps(config).lower()
    if method in ("modelopt", "compressed-tensors", "quark") and ('"fp8' in details or '"type": "float"' in details):
        # 4-bit floats (NVFP4, MXFP4) are a matter of their own.
        return "fp8" if '"num_bits": 8' in details or '"fp8' in details else str(method)
    return str(method) if method else None


def _context(language: Mapping[str, Any]) -> int | None:
    """With what the model's own files stretch it by: they name what it was made for."""
    plain = _whole(language, "max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")
    scaling = language.get("rope_scaling") or language.get("rope_parameters")
    if plain is None or not isinstance(scaling, dict):
        return plain
    kind, factor = scaling.get("rope_type", scaling.get("type")), scaling.get("factor")
    if kind in ("llama3", "default", "mrope", None) or not isinstance(factor, (int, float)) or factor <= 1:
        return plain
    original = _whole(scaling, "original_max_position_embeddings") or plain
    return max(plain, round(original * factor))


def _metadata(data: Buffer) -> dict[str, Any]:
    """Scalars and texts by their keys; of an array that it is there (an empty tuple)."""
    if bytes(data[0:4]) != b"GGUF":
        raise ValueError("no GGUF file")
    _, _, pairs = struct.unpack("<IQQ", data[4:24])
    if pairs > _MOST_KEYS:
        raise ValueError("too many keys")
    told: dict[str, Any] = {}
    at = 24
    for _ in range(pairs):
        key, at = _text(data, at)
        (kind,) = struct.unpack("<I", data[at : at + 4])
        told[key], at = _value(data, at + 4, kind)
    return told


def _value(data: Buffer, at: int, kind: int) -> tuple[Any, int]:
    if kind == _STRING:
        return _text(data, at)
    if kind in _SCALARS:
        form = f"<{_SCALARS[kind]}"
        end = at + struct.calcsize(form)
        return struct.unpack(form, data[at:end])[0], end
    if kind != _ARRAY:
        raise ValueError("a value of an unknown type")
    inner, count = struct.unpack("<IQ", data[at : at + 12])
    at += 12
    if inner in _SCALARS:
        return (), at + count * struct.calcsize(f"<{_SCALARS[inner]}")
    if inner != _STRING or count > _MOST_VALUES:
        raise ValueError("an array of an unknown type")
    for _ in range(count):
        (length,) = struct.unpack("<Q", data[at : at + 8])
        at += 8 + length
    return (), at


def _text(data: Buffer, at: int) -> tuple[str, int]:
    (length,) = struct.unpack("<Q", data[at : at + 8])
    if length > _LONGEST:
        return "", at + 8 + length
    end = at + 8 + length
    found = bytes(data[at + 8 : end])
    if len(found) < length:
        raise ValueError("it ends too early")
    return found.decode(), end
