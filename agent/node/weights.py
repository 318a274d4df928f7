# ruff: noqa: ASYNC240 - a stat of a local file takes microseconds; what reads one whole runs in a thread
"""The files of models on this node: used where they lie, or fetched whole before anybody sees them.

A download goes to `NAME.part` under a lock (one writer a file, also across agents), resumes where it broke off,
is checked against the SHA-256 that is asked for (or that the hub names), and then takes its name.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import logging
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from agent import starter
from agent.core.source import HUB, BadSource, Download, LocalFile, Starter, may_hold_secret, read
from agent.wire.shard import Source

if TYPE_CHECKING:
    import httpx

_log = logging.getLogger("llmgw.agent")

Progress = Callable[[float | None], None]
"""Told 0..1, or None where the whole is not known."""

_CHUNK = 1024 * 1024
_TRIES = 5
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SPARE = 64 * 1024 * 1024


class WeightsError(Exception):
    """The weights are not to be had; the sentence says why."""


class _TryAgain(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Known:
    """Beside a fetched file: what it is, so that it need not be read again to know it."""

    url: str
    sha256: str
    size: int
    sources: tuple[str, ...] = ()
    """As definitions named it."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of one node. `token` is the hub's, and is sent to the hub alone."""

    folder: Path
    hub: str = HUB
    token: str | None = None
    retry_s: float = 1.0
    """Before the second try of a broken download; doubled after each."""

    async def fetch(self, source: Source, progress: Progress) -> Path:
        """The whole, checked file. Raises `WeightsError`."""
        try:
            wanted = read(source.url, self.hub)
        except BadSource as e:
            raise WeightsError(str(e)) from None
        match wanted:
            case Starter(name):
                return _starter(name)
            case LocalFile(path):
                return await self._local(Path(path), source)
            case Download():
                return await self._download(wanted, source, progress)

    def listed(self) -> list[dict[str, Any]]:
        """What was fetched to this node, for a question of the control plane."""
        return [
            {"url": k.url.split("?", 1)[0], "path": str(file), "size_bytes": k.size, "sha256": k.sha256}
            for file, k in self._known()
        ]

    def whole(self) -> tuple[str, ...]:
        """Sources, as definitions name them, whose weights lie whole on this node. An address that may hold a secret
        is not told: whoever sees a node's facts would see it."""
        found = {f"starter:{name}" for name in starter.SHA256}
        for _, known in self._known():
            found.update(s for s in known.sources if not may_hold_secret(s))
        return tuple(sorted(found))

    def there(self, source: str) -> Path | None:
        """The weights that `source` names, where they lie whole on this node."""
        try:
            wanted = read(source, self.hub)
        except BadSource:
            return None
        match wanted:
            case Starter(name):
                return _starter(name) if name in starter.SHA256 else None
            case LocalFile(path):
                return Path(path) if Path(path).exists() else None
            case Download():
                file = self.folder / wanted.folder / wanted.name
                return file if file.exists() and file.with_name(f"{file.name}.json").exists() else None

    def drop(self, source: str) -> bool:
        """Deletes what was fetched of `source`; False: nothing was there, or somebody is fetching it just now. What
        lies elsewhere on the node was put there by a person, and stays."""
        try:
            wanted = read(source, self.hub)
        except BadSource:
            return False
        if not isinstance(wanted, Download):
            return False
        folder = self.folder / wanted.folder
        names = [wanted.name, *(f"{wanted.name}.{end}" for end in ("json", "part", "part.etag"))]
        there = [path for path in (folder / name for name in names) if path.exists()]
        if not there:
            return False
        fd = os.open(folder / f".{wanted.name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for path in there:
                path.unlink(missing_ok=True)
        except BlockingIOError:
            return False
        finally:
            os.close(fd)
        return True

    def _known(self) -> Iterator[tuple[Path, Known]]:
        for path in sorted(self.folder.glob("*/*.json")):
            try:
                known = msgspec.json.decode(path.read_bytes(), type=Known)
            except (OSError, msgspec.MsgspecError):
                continue
            file = path.with_suffix("")
            if file.exists():
                yield file, known

    def _named(self, note: Path, known: Known, source: str) -> None:
        """Another definition may name the same file otherwise; notes of older agents name none."""
        if source not in known.sources:
            note.write_bytes(msgspec.json.encode(replace(known, sources=(*known.sources, source))))

    async def _local(self, path: Path, source: Source) -> Path:
        if not path.exists():
            raise WeightsError(f"the model file {path} does not exist on this node")
        if source.sha256 is not None and path.is_file():
            found = await asyncio.to_thread(self._digest_of_local, path)
            if found != source.sha256.lower():
                raise WeightsError(f"{path} has the SHA-256 {found}, where {source.sha256} was wanted")
        return path

    def _digest_of_local(self, path: Path) -> str:
        """Reading many gigabytes twice is worth avoiding: a digest holds while the file's identity does."""
        try:
            stat = path.stat()
            identity = f"{path}:{stat.st_dev}:{stat.st_ino}:{stat.st_size}:{stat.st_mtime_ns}"
            note = self.folder / f".digest-{hashlib.sha256(identity.encode()).hexdigest()[:24]}"
            if note.exists():
                return note.read_text()
            digest = _digest(path)
        except OSError as e:
            raise WeightsError(f"the model file {path} cannot be read: {e}") from None
        try:
            note.write_text(digest)
        except OSError as e:
            _log.info("the digest of %s could not be noted: %s", path, e)
        return digest

    async def _download(self, wanted: Download, source: Source, progress: Progress) -> Path:
        folder = self.folder / wanted.folder
        try:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            async with _only_writer(folder / f".{wanted.name}.lock"):
                return await self._fetch(wanted, source, folder / wanted.name, progress)
        except OSError as e:
            raise WeightsError(f"{wanted.shown} cannot be stored in {folder}: {e}") from None

    async def _fetch(self, wanted: Download, source: Source, file: Path, progress: Progress) -> Path:
        note = file.with_name(f"{file.name}.json")
        if file.exists() and note.exists():
            known = msgspec.json.decode(note.read_bytes(), type=Known)
            if (source.sha256 is None or source.sha256.lower() == known.sha256) and file.stat().st_size == known.size:
                self._named(note, known, source.url)
                return file
        part = file.with_name(f"{file.name}.part")
        problem = "it was not tried"
        for attempt in range(_TRIES):
            if attempt:
                await asyncio.sleep(self.retry_s * 2 ** (attempt - 1))
            try:
                named = await self._transfer(wanted, source, part, progress)
            except _TryAgain as e:
                problem = str(e)
                _log.info("%s: %s", wanted.shown, problem)
                continue
            digest = await asyncio.to_thread(_digest, part)
            expected = source.sha256.lower() if source.sha256 else named
            if expected is not None and digest != expected:
                part.unlink(missing_ok=True)
                raise WeightsError(f"{wanted.shown} has the SHA-256 {digest}, where {expected} was wanted")
            size = part.stat().st_size
            part.chmod(0o644)  # an engine's own user reads it
            note.write_bytes(msgspec.json.encode(Known(wanted.url, digest, size, (source.url,))))
            part.replace(file)
            return file
        raise WeightsError(f"{wanted.shown} could not be fetched in {_TRIES} tries: {problem}")

    async def _transfer(self, wanted: Download, source: Source, part: Path, progress: Progress) -> str | None:
        """Brings `part` to its whole length. Returns the SHA-256 that the server named. Raises `_TryAgain`."""
        import httpx  # a tenth of a second and 10 MB that an agent without downloads does not spend

        headers = {"Accept-Encoding": "identity", "User-Agent": "llmgw-agent"}
        if wanted.hub and self.token:
            headers["Authorization"] = f"Bearer {self.token}"  # httpx drops it when it is sent on to another host
        tag_file = part.with_name(f"{part.name}.etag")
        have = part.stat().st_size if part.exists() else 0
        tag = tag_file.read_text() if have and tag_file.exists() else ""
        if have and tag:
            headers |= {"Range": f"bytes={have}-", "If-Range": tag}
        else:
            have = 0
        timeout = httpx.Timeout(60.0, connect=20.0)
        try:
            async with (
                httpx.AsyncClient(follow_redirects=True, timeout=timeout) as client,
                client.stream("GET", wanted.url, headers=headers) as response,
            ):
                named = _named(response)
                if response.status_code == 416 and have:
                    part.unlink(missing_ok=True)
                    raise _TryAgain("what was there is longer than the file: starting over")
                if response.status_code not in (200, 206):
                    _refuse(wanted, response, self.token is not None)
                resumed = response.status_code == 206
                have = have if resumed else 0
                length = response.headers.get("content-length", "")
                whole = have + int(length) if length.isdigit() else source.size_bytes
                _room(part, whole, have)
                new_tag = response.headers.get("etag", "")
                tag_file.write_text("" if new_tag.startswith("W/") else new_tag)
                with part.open("ab" if resumed else "wb") as f:
                    async for chunk in response.aiter_bytes(_CHUNK):
                        f.write(chunk)
                        have += len(chunk)
                        progress(min(1.0, have / whole) if whole else None)
                    f.flush()
                    await asyncio.to_thread(os.fsync, f.fileno())
        except httpx.HTTPError as e:
            raise _TryAgain(f"{type(e).__name__}: {e}") from None
        except httpx.InvalidURL as e:
            raise WeightsError(f"{wanted.shown} is no address: {e}") from None
        if whole is not None and have < whole:
            raise _TryAgain(f"it broke off after {have} of {whole} bytes")
        tag_file.unlink(missing_ok=True)
        return named


def _starter(name: str) -> Path:
    try:
        return starter.path(name)
    except starter.UnknownStarter as e:
        raise WeightsError(str(e)) from None


def _named(response: httpx.Response) -> str | None:
    """The digest that the hub names for a large file, on the answer that sent us on or on the last one."""
    for answer in (*response.history, response):
        found = answer.headers.get("x-linked-etag", "").strip('"').lower()
        if _SHA256.fullmatch(found):
            return str(found)
    return None


def _refuse(wanted: Download, response: httpx.Response, with_token: bool) -> None:
    status = response.status_code
    if status in (408, 425, 429) or status >= 500:
        raise _TryAgain(f"it was answered with {status}")
    why = {
        401: "it needs a token (HF_TOKEN in the agent's environment)" if not with_token else "the token was refused",
        403: "access is not granted (a gated model's terms are accepted on its page)",
        404: "there is no such file",
    }.get(status, "it was refused")
    raise WeightsError(f"{wanted.shown} was answered with {status}: {why}")


def _room(part: Path, whole: int | None, have: int) -> None:
    free = shutil.disk_usage(part.parent).free
    if whole is not None and whole - have + _SPARE > free:
        raise WeightsError(
            f"{whole - have} bytes are still to be fetched, and {part.parent} has {free} left: free some space there"
        )


def _digest(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


@asynccontextmanager
async def _only_writer(path: Path) -> AsyncIterator[None]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(0.2)
        yield
    finally:
        os.close(fd)
