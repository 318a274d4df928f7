"""The model that a new installation serves first: `tiny`, a known name, or any GGUF file of Hugging Face. Pure."""

from __future__ import annotations

from agent.wire.reason import Reason
from agent.wire.shard import Profile
from catalog.core import source as sources
from catalog.core.definition import Definition, ProfileDefinition, Scaling
from catalog.core.fields import GIB
from catalog.core.reading import NAME
from llmgw.cluster.errors import Invalid

MIB = 1024**2
_QWEN = "hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF/qwen2.5-0.5b-instruct-q4_k_m.gguf"


def starter(name: str) -> Definition:
    """The definition for `STARTER=name`; raises `Invalid` for a name that is none."""
    match name:
        case "tiny":
            return _on_cpu("tiny", "starter:tiny", context_length=2048, parallel=4, memory_bytes=256 * MIB, tools=True)
        case "qwen2.5-0.5b":
            return _on_cpu("qwen2.5-0.5b", _QWEN, context_length=4096, parallel=2, memory_bytes=GIB, tools=True)
    if not name.startswith("hf:"):
        known = "tiny, qwen2.5-0.5b, or hf:owner/repository/file.gguf"
        raise Invalid("unknown_starter", f"there is no starter model {name!r}; there are {known}")
    source = sources.normal(name)
    if isinstance(source, Reason):
        raise Invalid.several((source,))
    file = sources.hub_file(source)
    if file is None or not file.file.endswith(".gguf"):
        raise Invalid("bad_source", f"the starter {name} must be one .gguf file of a repository")
    return _on_cpu(_named(file.file), source, context_length=4096, parallel=2, memory_bytes=None, tools=None)


def _named(file: str) -> str:
    """A model name of a file's: its own name in small letters, without what a model name may not have."""
    stem = file.rsplit("/", 1)[-1].removesuffix(".gguf").lower()
    name = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in stem).strip("._-")[:120]
    return name if NAME.fullmatch(name) else "starter"


def _on_cpu(
    name: str, source: str, *, context_length: int, parallel: int, memory_bytes: int | None, tools: bool | None
) -> Definition:
    run = Profile(
        name="cpu", engine="llamacpp", context_length=context_length, parallel=parallel, memory_bytes=memory_bytes
    )
    return Definition(
        name=name,
        source=source,
        profiles=(ProfileDefinition(run=run),),
        tools=tools,
        context_length=context_length,
        scaling=Scaling(1, 1),
    )
