"""Starts llama.cpp's own HTTP server from the xllamacpp wheel, with the part of `llama-server`'s flags that llmgw
builds or that tune a model. The key comes from `LLAMA_API_KEY`, never from the command line.

    LLAMA_API_KEY=… python -m agent.launchers.llamacpp_server --model m.gguf --alias m --host 127.0.0.1 --port 9000

Ends with status 0 on SIGTERM; with 2 (what was asked) or 1 (what happened) and one sentence otherwise.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agent.core.last_words import FAREWELL
from agent.node import gguf_file


class Unusable(Exception):
    """What was asked for cannot be done; the sentence goes to the log, the status to whoever started us."""

    def __init__(self, sentence: str, status: int = 2) -> None:
        super().__init__(sentence)
        self.status = status


Setter = Callable[[Any, str], None]


def _field(name: str, convert: Callable[[str], Any]) -> Setter:
    return lambda params, value: setattr(params, name, convert(value))


def _threads(*pools: str) -> Setter:
    def set_(params: Any, value: str) -> None:
        for pool in pools:
            getattr(params, pool).n_threads = int(value)

    return set_


def _choice(field: str, enum: str, prefix: str, names: Sequence[str]) -> Setter:
    def set_(params: Any, value: str) -> None:
        import xllamacpp

        if value.lower() not in names:
            raise ValueError(f"one of {', '.join(names)} was expected")
        setattr(params, field, getattr(getattr(xllamacpp, enum), prefix + value.upper()))

    return set_


def _device(params: Any, value: str) -> None:
    if value != "none":
        raise ValueError("this build runs on the CPU alone: 'none' was expected")


def _tensor_split(params: Any, value: str) -> None:
    """Parts of the model by card: `3,1`. llama.cpp has a fixed number of places for them."""
    parts = [float(part) for part in value.replace("/", ",").split(",")]
    places = len(params.tensor_split)
    if len(parts) > places or not sum(parts) > 0 or min(parts) < 0:
        raise ValueError(f"at most {places} parts that are not all 0 were expected, as in 3,1")
    params.tensor_split = parts + [0.0] * (places - len(parts))


def _pooling(params: Any, value: str) -> None:
    _choice("pooling_type", "llama_pooling_type", "LLAMA_POOLING_TYPE_", ("none", "mean", "cls", "last", "rank"))(
        params, value
    )


def _timeout(params: Any, value: str) -> None:
    params.timeout_read = params.timeout_write = int(value)


def _flash(params: Any, value: str) -> None:
    import xllamacpp

    names = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}
    if value not in names:
        raise ValueError("one of on, off, auto was expected")
    kind = xllamacpp.llama_flash_attn_type
    params.flash_attn_type = getattr(kind, f"LLAMA_FLASH_ATTN_TYPE_{names[value]}")


_CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
_VALUES: dict[str, Setter] = {
    "--model": lambda params, value: setattr(params.model, "path", value),
    "--alias": _field("model_alias", lambda v: {v}),
    "--host": _field("hostnames", lambda v: [v]),
    "--port": _field("port", int),
    "--parallel": _field("n_parallel", int),
    "--ctx-size": _field("n_ctx", int),
    "--threads": _threads("cpuparams"),
    "--threads-batch": _threads("cpuparams_batch"),
    "--threads-http": _field("n_threads_http", int),
    "--batch-size": _field("n_batch", int),
    "--ubatch-size": _field("n_ubatch", int),
    "--predict": _field("n_predict", int),
    "--keep": _field("n_keep", int),
    "--n-gpu-layers": _field("n_gpu_layers", int),
    "--split-mode": _choice("split_mode", "llama_split_mode", "LLAMA_SPLIT_MODE_", ("none", "layer")),
    "--tensor-split": _tensor_split,
    "--main-gpu": _field("main_gpu", int),
    "--device": _device,
    "--flash-attn": _flash,
    "--cache-type-k": _choice("cache_type_k", "ggml_type", "GGML_TYPE_", _CACHE_TYPES),
    "--cache-type-v": _choice("cache_type_v", "ggml_type", "GGML_TYPE_", _CACHE_TYPES),
    "--cache-reuse": _field("n_cache_reuse", int),
    "--cache-ram": _field("cache_ram_mib", int),
    "--chat-template": _field("chat_template", str),
    "--rope-freq-base": _field("rope_freq_base", float),
    "--rope-freq-scale": _field("rope_freq_scale", float),
    "--pooling": _pooling,
    "--slot-prompt-similarity": _field("slot_prompt_similarity", float),
    "--timeout": _timeout,
    "--verbosity": _field("verbosity", int),
}
_SWITCHES: dict[str, tuple[str, Any]] = {
    "--metrics": ("endpoint_metrics", True),
    "--jinja": ("use_jinja", True),
    "--no-webui": ("ui", False),
    "--embeddings": ("embedding", True),
    "--slots": ("endpoint_slots", True),
    "--no-slots": ("endpoint_slots", False),
    "--cont-batching": ("cont_batching", True),
    "--no-cont-batching": ("cont_batching", False),
    "--context-shift": ("ctx_shift", True),
    "--no-context-shift": ("ctx_shift", False),
    "--cache-prompt": ("cache_prompt", True),
    "--no-cache-prompt": ("cache_prompt", False),
    "--no-warmup": ("warmup", False),
    "--swa-full": ("swa_full", True),
    "--kv-unified": ("kv_unified", True),
}
_SHORT = {
    "-b": "--batch-size",
    "-ub": "--ubatch-size",
    "-cram": "--cache-ram",
    "-n": "--predict",
    "--n-predict": "--predict",
    "-ngl": "--n-gpu-layers",
    "--gpu-layers": "--n-gpu-layers",
    "-sm": "--split-mode",
    "-ts": "--tensor-split",
    "-mg": "--main-gpu",
    "-fa": "--flash-attn",
    "-ctk": "--cache-type-k",
    "-ctv": "--cache-type-v",
    "-cb": "--cont-batching",
    "-nocb": "--no-cont-batching",
    "-lv": "--verbosity",
    "-sps": "--slot-prompt-similarity",
    "-to": "--timeout",
    "-kvu": "--kv-unified",
}


def main(argv: Sequence[str] | None = None) -> None:
    key = os.environ.pop("LLAMA_API_KEY", "")
    try:
        _serve(list(sys.argv[1:] if argv is None else argv), key)
    except Unusable as e:
        _say(f"{FAREWELL}{e}")
        sys.stderr.flush()
        os._exit(e.status)


def _serve(argv: list[str], key: str) -> None:
    if not key:
        raise Unusable("LLAMA_API_KEY is not set, and an engine without a key would answer anybody")
    given = parse(argv)
    model = next((value for flag, value in reversed(given) if flag == "--model"), None)
    if model is None:
        raise Unusable("--model FILE is missing")
    found = gguf_file.problem(Path(model))
    if found is not None:
        raise Unusable(found.sentence, status=1)
    try:
        import xllamacpp
    except ImportError as e:
        raise Unusable(f"the xllamacpp wheel cannot be used: {e}; pip install xllamacpp", status=1) from None
    params = xllamacpp.CommonParams()
    params.use_jinja, params.ui, params.api_keys = True, False, [key]
    for flag, value in given:
        try:
            if value is None:
                setattr(params, *_SWITCHES[flag])
            else:
                _VALUES[flag](params, value)
        except (ValueError, TypeError, OverflowError, AttributeError) as e:
            raise Unusable(f"{flag} {value!r} cannot be used: {e}") from None
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as e:
        raise Unusable(f"llama.cpp could not start: {e}", status=1) from None
    _say(f"listening on {server.listening_address}")
    # Until here SIGTERM ends the process at once, as Python cannot run a handler while llama.cpp loads. From here on
    # any thread may take it (a machine that shuts down stops processes before it ends them, and then it is mostly one
    # of llama.cpp's), while Python runs the handler in this one: it waits for the byte that every signal writes.
    waits, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    while True:
        waits.recv(1)


def parse(argv: Sequence[str]) -> list[tuple[str, str | None]]:
    """Each flag in its long form with its value (None for a switch). Raises `Unusable`; knows no abbreviations."""
    found: list[tuple[str, str | None]] = []
    rest = list(argv)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        flag = _SHORT.get(name, name)
        if flag in _SWITCHES:
            if equals:
                raise Unusable(f"{name} takes no value")
            found.append((flag, None))
        elif flag in _VALUES:
            if not equals:
                if not rest:
                    raise Unusable(f"{name} needs a value")
                value = rest.pop(0)
            found.append((flag, value))
        else:
            raise Unusable(f"{name[:80]} is not a flag of this launcher, which knows {', '.join(_known())}")
    return found


def _known() -> list[str]:
    return sorted([*_VALUES, *_SWITCHES])


def _say(line: str) -> None:
    """One line into the log; a log that cannot be written (a full disk) must not end an engine."""
    try:
        os.write(2, f"{line}\n".encode(errors="replace"))
    except OSError:
        return


if __name__ == "__main__":
    main()
