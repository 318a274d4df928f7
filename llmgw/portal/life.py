"""A request's life as a bar: what its time went into, from what the books hold of it. Pure.

A stretch whose end nobody knows is one with what follows it, and drawn as unknown; it is never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

WIDTH = 1000.0
"""Of the drawing, in its own units."""

WORDS: dict[str, str | Promise] = {
    "queue": _("waited to be let in"),
    "tries": _("attempts that failed"),
    "first": _("until the first token"),
    "answer": _("answering"),
    "whole": _("until the whole answer: when it began is not known"),
    "end": _("until it ended, without an answer"),
    "nothing": _("not known"),
}


@dataclass(frozen=True, slots=True)
class Stretch:
    """`kind` is a class for the style sheet; `x` and `width` as text, for a template must not write them in the page's
    language. `ms`: None is unknown."""

    kind: str
    ms: float | None
    x: str
    width: str

    @property
    def words(self) -> str | Promise:
        return WORDS[self.kind]


def life(request: Mapping[str, Any]) -> tuple[Stretch, ...]:
    """In order; at least one."""
    whole = request.get("duration_ms")
    if whole is None or whole <= 0:
        return (Stretch("nothing", None, "0", f"{WIDTH:.0f}"),)
    edges = _edges(request, whole)
    found, began = [], 0.0
    for kind, until in edges:
        until = min(max(until, began), whole)
        if until > began or kind == edges[-1][0]:
            x, end = WIDTH * began / whole, WIDTH * until / whole
            found.append(Stretch(kind, until - began, f"{x:.1f}", f"{end - x:.1f}"))
        began = until
    return tuple(found)


def _edges(request: Mapping[str, Any], whole: float) -> list[tuple[str, float]]:
    """(what, until when in milliseconds since it came), the last one until the end."""
    found: list[tuple[str, float]] = []
    queued, sent, first = (request.get(name) for name in ("queued_ms", "dispatched_ms", "ttft_ms"))
    if queued:
        found.append(("queue", queued))
    if sent is not None and (request.get("attempts") or 0) > 1:
        found.append(("tries", sent))
    if first is not None:
        return [*found, ("first", first), ("answer", whole)]
    return [*found, ("whole" if request.get("outcome") == "ok" else "end", whole)]
