"""Whether a request may be answered with an answer that was given before, and whether an answer may be kept. Pure."""

from __future__ import annotations

from typing import Literal

from gateway.core import chunk
from gateway.core.request import EMBEDDINGS
from gateway.core.reuse.asked import Asked
from gateway.core.snapshot import Scope

HIT, SIMILAR, MISS, BYPASS = "hit", "similar", "miss", "bypass"
Verdict = Literal["off", "bypass", "look"]
_KEPT_ENDINGS = frozenset({b"stop", b"length", b"tool_calls", b"function_call"})
_ANEW = frozenset({b"no-cache", b"no-store"})


def verdict(scope: Scope, asked: Asked | None, cache_control: bytes | None, own: bytes | None) -> Verdict:
    """`cache_control`, `own`: what the client says in `Cache-Control` and in `x-llmgw-cache`. `bypass`: it is asked
    anew, and its answer is not kept."""
    if scope.reuse is None:
        return "off"
    if scope.no_store or asked is None or _wants_anew(cache_control, own):
        return "bypass"
    return "look" if scope.reuse.any or asked.reproducible else "bypass"


def whole(endpoint: str, body: bytes) -> bool:
    """Whether every choice of the JSON answer `body` came to an end of its own."""
    if endpoint == EMBEDDINGS:
        return True
    endings = chunk.FINISH.findall(body)  # inside a JSON text its quotes would be escaped
    return bool(endings) and _KEPT_ENDINGS.issuperset(endings)


def _wants_anew(cache_control: bytes | None, own: bytes | None) -> bool:
    if own is not None and own.strip().lower() == b"no":
        return True
    said = (cache_control or b"").lower().split(b",")
    return not _ANEW.isdisjoint(word.partition(b"=")[0].strip() for word in said)
