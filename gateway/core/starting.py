"""A model that starts for whoever asks: when it should answer, and what those hear who do not wait so long. Pure."""

from __future__ import annotations

from math import ceil
from typing import Any

from gateway.core.errors import Unavailable
from gateway.core.snapshot import ModelEntry

SOON_S = 2
"""Retry-After where it should have been ready already."""
PATIENCE = 2.0
"""Who may wait for less than this part of the expected time is told so at once: expectations are not exact."""


def expected_s(entry: ModelEntry, at: float) -> float | None:
    """Seconds from `at` (Unix seconds) until it should answer; None where nobody knows."""
    if entry.ready_at is not None:
        return max(0.0, entry.ready_at - at)
    return entry.start_s if entry.state == "idle" else None


def hopeless(expected: float | None, may_wait_s: float) -> bool:
    return not may_wait_s or (expected is not None and expected > PATIENCE * may_wait_s)


class NotLoaded(Unavailable):
    """It comes, but not soon enough for this request. `eta_s` None: nobody knows when."""

    def __init__(self, entry: ModelEntry, at: float) -> None:
        eta_s = expected_s(entry, at)
        self.held_by, self.eta_s = _told(entry, at)
        if eta_s is None:
            when, retry_after_s = "how long that takes is not known yet", entry.retry_after_s
        elif eta_s < SOON_S:
            when, retry_after_s = "it should answer any moment", SOON_S
        else:
            when, retry_after_s = f"it should answer in about {self.eta_s} s", self.eta_s or SOON_S
        super().__init__(
            f"the model '{entry.name}' {_words(entry)}: {when}; try again then",
            code="model_waiting" if entry.state == "waiting" else "model_loading",
            retry_after_s=max(1, retry_after_s),
        )

    def headers(self) -> list[tuple[bytes, bytes]]:
        return [*super().headers(), *_headers(self.held_by, self.eta_s)]

    def fields(self) -> dict[str, Any]:
        """The same again: a stream that was kept open meanwhile has no headers left to say it in."""
        told = {"retry_after_seconds": self.retry_after_s, "held_by": self.held_by or None, "eta_seconds": self.eta_s}
        return {**super().fields(), **told}


def headers(entry: ModelEntry, at: float) -> list[tuple[bytes, bytes]]:
    """For somebody who waits for it."""
    return _headers(*_told(entry, at))


def _told(entry: ModelEntry, at: float) -> tuple[str, int | None]:
    eta_s = expected_s(entry, at)
    return entry.held_by if entry.state == "waiting" else "", None if eta_s is None else max(1, ceil(eta_s))


def _headers(held_by: str, eta_s: int | None) -> list[tuple[bytes, bytes]]:
    found = []
    if held_by:
        name = held_by.encode("ascii", "replace")
        found += [(b"x-llmgw-held-by", name), (b"x-llmgw-waiting-for", name)]
    if eta_s is not None:
        found.append((b"x-llmgw-eta-seconds", b"%d" % eta_s))
    return found


def _words(entry: ModelEntry) -> str:
    if entry.state == "waiting":
        holder = f"that '{entry.held_by}' holds" if entry.held_by else "that others hold"
        return f"is not loaded, and waits for a card {holder}"
    if entry.state == "idle":
        return "is loaded on demand, and is being started"
    return "is loading"
