"""The flags that llmgw builds for an engine, held against what an installed one says it takes: they drift between
releases. Pure; whoever asks an engine brings its words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from agent.engine import Paths
from agent.engines import ENGINES
from agent.engines.rules import flag_of
from agent.wire.shard import Gang, Profile, ShardSpec, Source

_WORD = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")
_LLAMACPP_LAUNCHER = "agent.launchers.llamacpp_server"
_PYTHON = re.compile(r"python[0-9.]*")


def asks(engine: str, path: str) -> tuple[tuple[str, ...], ...]:
    """Commands that print what the engine takes; the first that names flags is believed."""
    interpreter = _PYTHON.fullmatch(path.rsplit("/", 1)[-1]) is not None
    match engine:
        case "llamacpp":
            # Our launcher says what it knows when it is asked for something it does not.
            return ((path, "-P", "-m", _LLAMACPP_LAUNCHER, "--help"),) if interpreter else ((path, "--help"),)
        case "vllm":
            start = (path, "-P", "-m", "vllm.entrypoints.cli.main") if interpreter else (path,)
            return ((*start, "serve", "--help=all"), (*start, "serve", "--help"))
        case "sglang":
            return ((path, "-P", "-m", "sglang.launch_server", "--help"),)
        case "trtllm":
            return ((path, "-P", "-m", "tensorrt_llm.commands.serve", "serve", "--help"),)
        case _:
            return ((path, "--help"),)


def built(engine: str, path: str = "/engine") -> tuple[str, ...]:
    """Every flag of the server's command line, over profiles that between them ask for all that there is."""
    found: dict[str, None] = {}
    known = ENGINES[engine]
    for shard in _shards(engine):
        command = known.commands(shard, Paths("/weights", path, "/scratch"), "127.0.0.1")[-1]
        for argument in command.argv[1:]:
            flag = flag_of(argument)
            if flag is not None and flag not in ("-P", "-m"):
                found.setdefault(flag)
    return tuple(found)


def unknown(engine: str, said: str, path: str = "/engine") -> tuple[str, ...]:
    """Those of `built` that what the engine said does not name."""
    named = {flag_of(word) for word in _WORD.findall(said)}
    return tuple(flag for flag in built(engine, path) if flag not in named)


def tells_flags(said: str) -> bool:
    return len(_WORD.findall(said)) >= 5


def _shards(engine: str) -> Iterator[ShardSpec]:
    known = ENGINES[engine].capabilities
    plain = Profile("p", engine, context_length=4096, parallel=4, cpu_cores=2, memory_bytes=2**30)
    one = ShardSpec("r.0", "r", "m", plain, Source("path:/weights"), 9000, "k")
    if known.cpu:
        yield one
    if known.embeddings:
        yield replace(one, profile=replace(plain, embeddings=True))
    if known.gpu:
        cards = replace(plain, gpus=4, tp=2, pp=2) if known.tensor_parallel else replace(plain, gpus=2)
        yield replace(one, profile=cards, devices=tuple(range(cards.gpus)))
    if known.multi_node:
        gang = Gang(("10.0.0.1", "10.0.0.2"), 9100)
        several = replace(plain, gpus=2, tp=4, nodes=2)
        for rank in (0, 1):
            yield replace(
                one, shard_id=f"r.{rank}", rank=rank, world_size=2, devices=(0, 1), profile=several, gang=gang
            )
