"""The snapshot in force: from disk at the start, from Redis since, swapped part by part, kept on disk again.

A subscription tells at once, a poll of the versions each second makes up for a lost word. With Redis away the last
good parts stay in force.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import redis.asyncio as redis
from redis.exceptions import RedisError

from gateway.core.snapshot import CHANNEL, PARTS, PREFIX, TYPES, VERSIONS, Snapshot, decode

log = logging.getLogger(__name__)
POLL_S = 1.0
NEEDED = ("tenancy", "catalog", "endpoints")
"""Without these an edge cannot answer; policies have defaults."""


class Snapshots:
    """`current` is replaced, never changed; `on_change(part name)` is called after each swap."""

    def __init__(self, client: redis.Redis, folder: Path, on_change: Callable[[str], None]) -> None:
        self.current = Snapshot()
        self.reached_at: float | None = None
        """The loop's time when Redis last answered."""
        self._client, self._folder, self._on_change = client, folder, on_change
        self._have: set[str] = set()
        self._reading = asyncio.Lock()

    @property
    def missing(self) -> list[str]:
        return [part for part in NEEDED if part not in self._have]

    def load_from_disk(self) -> None:
        for name in PARTS:
            with contextlib.suppress(FileNotFoundError):
                data = (self._folder / f"{name}.json").read_bytes()
                if not self._swap(name, data):
                    log.warning("the kept snapshot part %s could not be read", name)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._poll())
            group.create_task(self._listen())

    async def refresh(self) -> None:
        """Fetch the parts whose version is not the one in force; raises `RedisError` or `OSError`."""
        async with self._reading:
            versions = await self._client.hgetall(VERSIONS)
            self.reached_at = asyncio.get_running_loop().time()
            for name in PARTS:
                version = versions.get(name.encode())
                if version is None or (name in self._have and int(version) == self._version(name)):
                    continue
                data = await self._client.get(PREFIX + name)
                if isinstance(data, bytes) and self._swap(name, data):
                    self._keep(name, data)

    async def _poll(self) -> None:
        said = False
        while True:
            try:
                await self.refresh()
                said = False
            except (RedisError, OSError, ValueError) as e:
                if not said:
                    log.warning("Redis cannot be read (%s): the last good snapshot stays in force", type(e).__name__)
                said = True
            await asyncio.sleep(POLL_S)

    async def _listen(self) -> None:
        while True:
            try:
                async with self._client.pubsub(ignore_subscribe_messages=True) as channel:
                    await channel.subscribe(CHANNEL)
                    while True:
                        if await channel.get_message(timeout=None) is not None:
                            await self.refresh()
            except (RedisError, OSError, ValueError):
                await asyncio.sleep(POLL_S)

    def _version(self, name: str) -> int:
        part: Any = getattr(self.current, name)
        return int(part.version)

    def _swap(self, name: str, data: bytes) -> bool:
        try:
            part = decode(name, data)
        except msgspec.MsgspecError as e:
            log.error("the snapshot part %s does not fit and was left out: %s", name, e)
            return False
        assert isinstance(part, TYPES[name])
        self.current = replace(self.current, **{name: part})  # type: ignore[arg-type]
        self._have.add(name)
        self._on_change(name)
        return True

    def _keep(self, name: str, data: bytes) -> None:
        """On disk, for a start without Redis; a full disk costs only that."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary = self._folder / f".{name}.{os.getpid()}"
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(fd, "wb") as f:
                f.write(data)
            temporary.replace(self._folder / f"{name}.json")
        except OSError as e:
            log.warning("the snapshot part %s could not be kept on disk: %s", name, e.strerror)
