"""One request, one look at the settings: read once, and anew after a change of its own.

Whatever is no request (a task, a command, a stream that goes on after its answer) reads them each time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

from llmgw.cluster.core.settings import ClusterSettings


class _Look:
    """Shared by everything that works for one request, in whatever thread."""

    def __init__(self) -> None:
        self.open = True
        self.settings: ClusterSettings | None = None


_look: ContextVar[_Look | None] = ContextVar("settings_look", default=None)


def begin() -> None:
    _look.set(_Look())


def end() -> None:
    look = _look.get()
    if look is not None:
        look.open, look.settings = False, None
    _look.set(None)


def changed() -> None:
    """They were saved: what was seen before is over."""
    look = _look.get()
    if look is not None:
        look.settings = None


def once(read: Callable[[], ClusterSettings]) -> ClusterSettings:
    """What this request has seen already, else what `read` gives."""
    look = _look.get()
    if look is None or not look.open:
        return read()
    if look.settings is None:
        look.settings = read()
    return look.settings
