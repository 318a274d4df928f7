"""The sign of life of long work that one worker does, by a key in Redis: one at a time, and stopped by whoever asks.

The key holds the work's id, and ` stop` behind it once somebody wants it ended. It expires unless the worker lives.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar, cast

import msgspec
import redis

from agent.wire.reason import Reason
from fleet import nudges
from llmgw.cluster.errors import Refusal

TAKEN_UP_S = 60
"""A worker takes it up within this, or never."""
HEARD_S = 30
_STOP = " stop"


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """`state`: waiting (for a worker), running, stopping, done, stopped, failed, lost."""

    id: str
    actor: str
    begun_at: float
    state: str = "waiting"
    reason: Reason | None = None
    ended_at: float | None = None

    @property
    def runs(self) -> bool:
        return self.state in ("waiting", "running", "stopping")


W = TypeVar("W", bound=Work)


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


def as_it_stands(key: str, work: W, kind: str) -> W:
    """Held against who lives: stopping, or lost with the code `KIND_lost`. Raises `redis.RedisError`."""
    found = standing(key, work.id) if work.runs else "alive"
    if found == "stopping":
        return msgspec.structs.replace(work, state="stopping")
    if found == "alive":
        return work
    why = "no worker took it up" if work.state == "waiting" else "the worker that did it is gone"
    return msgspec.structs.replace(work, state="lost", reason=Reason(f"{kind}_lost", why, "llmgw status"))


def carry_out(key: str, work: W, kind: str, keep: Callable[[W], None], do: Callable[[W, Heart], W]) -> None:
    """In a worker, from beginning to end, kept at both. A message that came twice does it once."""
    if work.state not in ("waiting", "stopping"):
        return
    work = msgspec.structs.replace(work, state="running")
    keep(work)
    beats = Heart(key, work.id)
    beats.start()
    try:
        work = do(work, beats)
    except Refusal as e:
        work = msgspec.structs.replace(work, state="failed", reason=e.reason)
    except Exception as e:  # whoever watches has to hear that it is over
        reason = Reason(f"{kind}_failed", f"it broke off: {type(e).__name__}", "llmgw status")
        work = msgspec.structs.replace(work, state="failed", reason=reason)
        raise
    finally:
        keep(msgspec.structs.replace(work, ended_at=time.time()))
        beats.end()
