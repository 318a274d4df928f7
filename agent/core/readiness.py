"""What an engine's answers say of it: starting, loading, ready, or another process on its port. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from agent.wire.facts import device_name


class Verdict(StrEnum):
    STARTING = "starting"
    """Nothing answers on the port."""
    LOADING = "loading"
    READY = "ready"
    FOREIGN = "foreign"
    """Somebody answers who serves another model, or does not know our key."""
    OFF_CARD = "off_card"
    """It answers (or lives, where it serves no HTTP), and holds no memory on a card that it was given."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was found of a shard, and what to say of it where that needs saying."""

    verdict: Verdict
    sentence: str | None = None


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes = b""


def verdict(alive: Response | None, ready: Response | None, model: str) -> Verdict:
    """`alive` and `ready` answer the engine's two probes; None where nobody did. Old builds of llama.cpp list
    their model while they still load it, so both must be 200, and the list must name the model."""
    if alive is None and ready is None:
        return Verdict.STARTING
    if ready is not None and ready.status in (401, 403):
        return Verdict.FOREIGN
    if alive is None or ready is None or alive.status != 200 or ready.status != 200:
        return Verdict.LOADING
    names = _models(ready.body)
    if names is None:
        return Verdict.FOREIGN
    if not names:
        return Verdict.LOADING
    return Verdict.READY if model in names else Verdict.FOREIGN


def _models(body: bytes) -> list[str] | None:
    """The ids of an OpenAI model list; None when the body is something else."""
    try:
        found: Any = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    data = found.get("data") if isinstance(found, dict) else None
    if not isinstance(data, list):
        return None
    return [str(m["id"]) for m in data if isinstance(m, dict) and "id" in m]


def off_card(held: Mapping[int, int | None], engine: str, *, serves: bool) -> str | None:
    """What to say of a shard that holds nothing on some of its cards; None where it holds memory on each. `engine`
    names its build."""
    empty = [d for d, n in sorted(held.items()) if n == 0]
    if not empty:
        return None
    which = f"card{'s' if len(empty) > 1 else ''} {', '.join(map(device_name, empty))}"
    whole = "" if len(empty) == len(held) else f" (of {len(held)} that it was given)"
    if not serves:
        return f"it lives, and holds no memory yet on {which}{whole}"
    told = f"it answers, and holds no memory on {which}{whole}: it computes on the CPU"
    return f"{told}; {engine} may be a build without CUDA"
