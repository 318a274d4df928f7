"""The settings of the engines that nodes install by themselves, and what is wrong with them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated

import msgspec

from agent.plans import DEFAULTS, INSTALLABLE, version_problem
from llmgw.cluster.core.sections import BadSettings, Labels

Address = Annotated[str, msgspec.Meta(pattern=r"^(https?://\S+)?$")]
Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]


@dataclass(frozen=True, slots=True)
class EngineVersions:
    """What nodes install by themselves; empty: nothing, it is left to whoever runs the node (docs/engines-install.md).
    llama.cpp everywhere, vLLM where a node's cards run it, SGLang only where it is named here."""

    llamacpp: str = DEFAULTS["llamacpp"]
    vllm: str = DEFAULTS["vllm"]
    sglang: str = DEFAULTS["sglang"]


@dataclass(frozen=True, slots=True)
class EngineOverride:
    """Other versions for some nodes: those that have a card of this class (`a10g`, `a10g-22g`), this id, and these
    labels; what is not given is not asked."""

    engines: dict[str, str]
    gpu_class: str = ""
    id: str = ""
    labels: Labels = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OfflineSettings:
    """Where nodes get engines instead of the internet: `mirror` the files, `index` Python packages (else the
    mirror's), `sha256` what each file on the mirror must be, by its name."""

    mirror: Address = ""
    index: Address = ""
    sha256: dict[str, Digest] = field(default_factory=dict)


def check(versions: EngineVersions, overrides: Sequence[EngineOverride]) -> None:
    """Raises `BadSettings`."""
    for i, override in enumerate(overrides):
        where = f"engine_overrides[{i}]"
        if not (override.gpu_class or override.id or override.labels):
            raise BadSettings(f"{where} picks no nodes: it needs gpu_class, id or labels (for all nodes set engines)")
        if not override.engines:
            raise BadSettings(f"{where} says no version: it needs engines, like {{vllm: '0.29.0'}}")
    for where, asked in _asked(versions, overrides):
        for engine, version in asked.items():
            if engine not in INSTALLABLE:
                known = ", ".join(INSTALLABLE)
                raise BadSettings(f"{where}: nodes install {known}, and not {engine}")
            bad = version_problem(engine, version)
            if bad is not None:
                raise BadSettings(f"{where}: {bad.sentence}")


def _asked(versions: EngineVersions, overrides: Sequence[EngineOverride]) -> Iterator[tuple[str, Mapping[str, str]]]:
    yield "engines", asdict(versions)
    yield from ((f"engine_overrides[{i}].engines", override.engines) for i, override in enumerate(overrides))
