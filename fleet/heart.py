"""The sign of life of long work that one worker does, by a key in Redis: one at a time, and stopped by whoever asks.

The key holds the work's id, and ` stop` behind it once somebody wants it ended. It expires unless the worker lives.
"""

from __future__ import annotations

import threading
from typing import cast

import redis

from fleet import nudges

TAKEN_UP_S = 60
"""A worker takes it up within this, or never."""
HEARD_S = 30
_STOP = " stop"


def claim(key: str, work: str) -> bool:
    """False: other work of this kind goes on. Raises `redis.RedisError`."""
    return bool(nudges.client().set(key, work, nx=True, ex=TAKEN_UP_S))


def ask_to_stop(key: str, work: str) -> None:
    nudges.client().set(key, work + _STOP, xx=True, keepttl=True)


def standing(key: str, work: str) -> str:
    """alive, stopping or gone."""
    said = (cast(bytes | None, nudges.client().get(key)) or b"").decode()
    return {work: "alive", work + _STOP: "stopping"}.get(said, "gone")


class Heart(threading.Thread):
    """Beats in the worker that does it; `stopped` is set once it is to end."""

    def __init__(self, key: str, work: str) -> None:
        super().__init__(daemon=True, name="heart")
        self._key, self._work = key, work
        self._over = threading.Event()
        self.stopped = threading.Event()

    def run(self) -> None:
        while True:
            try:
                found = standing(self._key, self._work)
                if found != "alive":
                    self.stopped.set()
                if found != "gone":
                    nudges.client().expire(self._key, HEARD_S)
            except redis.RedisError:  # the next beat tells
                pass
            if self._over.wait(1.0):
                return

    def end(self) -> None:
        self._over.set()
        self.join(5)
        try:
            if standing(self._key, self._work) != "gone":
                nudges.client().delete(self._key)
        except redis.RedisError:  # it expires
            pass
