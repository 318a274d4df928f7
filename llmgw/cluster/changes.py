"""How a change in one app reaches what is built from it in another, without the apps knowing one another.

An action that changed the rows behind a part calls `announce("tenancy")` inside its transaction: the part's
version moves with the rows, and after the commit every listener runs in this process, at once, and once: however
much was announced in a transaction, all of it is there to be looked at after its commit. A listener that fails loses
nothing: whoever polls versions (`gateway.control`, `fleet`) comes by within two seconds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from django.db import close_old_connections, transaction
from django.db.models import F
from django.db.models.functions import Now

from llmgw.cluster.models import Change

log = logging.getLogger(__name__)
_listeners: dict[str, list[Callable[[], None]]] = {}


class _Told(threading.local):
    """The listeners that have run since this thread's last announcement, and so since its commit."""

    def __init__(self) -> None:
        self.listeners: set[Callable[[], None]] = set()


_told = _Told()


class _Aside(threading.Thread):
    """Tells in a thread of its own; what is announced while it does is told next, in one go."""

    def __init__(self) -> None:
        super().__init__(daemon=True, name="changes")
        self._changed = threading.Condition()
        self._names: set[str] = set()

    def tell(self, names: tuple[str, ...]) -> None:
        with self._changed:
            self._names.update(names)
            self._changed.notify()

    def run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._names)
                names, self._names = tuple(sorted(self._names)), set()
            close_old_connections()
            _told.listeners = set()
            _run(names)
            close_old_connections()


_aside: _Aside | None = None


def tell_aside() -> None:
    """From now on what is announced in this process is told by a thread of its own: for a process whose work must not
    wait for Redis, nor for what is built from the whole fleet at each change."""
    global _aside
    if _aside is None:
        _aside = _Aside()
        _aside.start()


def listen(name: str, listener: Callable[[], None]) -> None:
    """Run `listener` after each commit that changed `name`; called from an app's `ready()`. One that listens to several
    names runs once for all of them."""
    if listener not in _listeners.setdefault(name, []):
        _listeners[name].append(listener)


def announce(*names: str) -> None:
    """Say that the rows behind `names` changed; must be called in the transaction that changed them."""
    for name in names:
        if not Change.objects.filter(name=name).update(version=F("version") + 1, changed_at=Now()):
            Change.objects.get_or_create(name=name)
            Change.objects.filter(name=name).update(version=F("version") + 1)
    _told.listeners = set()
    transaction.on_commit(lambda: _tell(names))


def versions() -> dict[str, int]:
    """The version of every part that ever changed."""
    return dict(Change.objects.values_list("name", "version"))


def _tell(names: tuple[str, ...]) -> None:
    if _aside is not None:
        _aside.tell(names)
    else:
        _run(names)


def _run(names: tuple[str, ...]) -> None:
    told = _told.listeners
    for name in names:
        for listener in _listeners.get(name, ()):
            if listener in told:
                continue
            told.add(listener)
            try:
                listener()
            except Exception:  # a listener's failure must not undo or hide a commit that is done; polling mends it
                log.warning("%s changed, and telling %s failed; polling will do it", name, listener, exc_info=True)
