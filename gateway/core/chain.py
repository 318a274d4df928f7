"""Who answers when a model cannot: its fallbacks, then theirs, of those that may answer this request. Pure.

Every hop's own name is judged as if it had been asked for: the key's and the project's allowlists, residency, what it
answers, what it sees, how much it can read. The bounds hold for whatever the catalog says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from gateway.core.errors import BadRequest, GatewayError
from gateway.core.principal import Principal, check_leaving, check_model
from gateway.core.request import Request
from gateway.core.snapshot import ModelEntry

DEPTH = 4
"""How far fallbacks of fallbacks are followed."""
MOST = 4
"""Models that are tried for one request, beside the one that was asked for."""
Find = Callable[[str], ModelEntry | None]
"""A model by its name or alias."""


@dataclass(frozen=True, slots=True)
class Step:
    """The next model, None where there is none left; `passed`: those before it that may not, with why."""

    entry: ModelEntry | None
    passed: tuple[str, ...] = ()


def next_after(asked: ModelEntry, tried: Collection[str], find: Find, who: Principal, request: Request) -> Step:
    """Who answers instead of `asked` after the models `tried` (names, `asked` among them) could not."""
    passed: list[str] = []
    if len(tried) <= MOST:
        for name, entry in _fallbacks(asked, find):
            if entry is None:
                passed.append(f"{name}: there is no such model")
            elif entry.name not in tried:
                refusal = refused(entry, who, request) or _too_long(asked, entry, request)
                if refusal is None:
                    return Step(entry, tuple(passed))
                passed.append(f"{entry.name}: {refusal.name}")
    return Step(None, tuple(passed))


def refused(entry: ModelEntry, who: Principal, request: Request) -> GatewayError | None:
    """Why this request may not be answered by `entry`: what the client reads that asked for it by name."""
    refusal = check_model(who, entry.name)
    if refusal is None and entry.external is not None:
        refusal = check_leaving(who, entry)
    if refusal is not None:
        return refusal
    if request.endpoint not in entry.kinds:
        known = ", ".join(entry.kinds)
        return BadRequest(
            f"the model '{entry.name}' does not answer {request.endpoint} (it answers {known})",
            code="unsupported_endpoint",
            param="model",
        )
    if request.images and entry.vision is False:
        return BadRequest(f"the model '{entry.name}' does not see pictures", code="no_vision", param="messages")
    return None


def _fallbacks(asked: ModelEntry, find: Find) -> Iterator[tuple[str, ModelEntry | None]]:
    """Level by level, each model once."""
    seen, level = {asked.name}, [asked]
    for _ in range(DEPTH):
        below: list[ModelEntry] = []
        for parent in level:
            for name in parent.fallbacks:
                entry = find(name)
                if entry is None or entry.name not in seen:
                    yield name, entry
                if entry is not None and entry.name not in seen:
                    seen.add(entry.name)
                    below.append(entry)
        level = below


def _too_long(asked: ModelEntry, entry: ModelEntry, request: Request) -> GatewayError | None:
    """Only where it is known to have less room than the model that was asked for."""
    room = entry.context_length
    if room is None or (asked.context_length is not None and room >= asked.context_length):
        return None
    if request.prompt_tokens + (request.max_tokens or 0) <= room:
        return None
    return BadRequest(f"the request does not fit into {room} tokens", code="context_length_exceeded")
