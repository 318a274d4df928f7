"""Where installed engines are: `ENGINE/VERSION-BUILD/`, whole and marked or not there at all.

What is being made lies beside it under a name with a dot and takes its own by a rename; whatever else bears such a
name when nobody works here was left by somebody who was killed, and goes.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agent.node.home import write_atomically
from agent.plans.steps import Plan

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,79}")
_MARK = "llmgw-installed.json"


class Busy(Exception):
    """Somebody else installs into this folder."""


@dataclass(frozen=True, slots=True)
class Mark:
    """In a whole installation: what it is. `run`: its executable or interpreter, from the folder."""

    engine: str
    version: str
    build: str
    run: str
    at: float


@dataclass(frozen=True, slots=True)
class Folders:
    root: Path

    @property
    def downloads(self) -> Path:
        return self.root / ".downloads"

    @property
    def cache(self) -> Path:
        """uv's; kept until an environment stands."""
        return self.root / ".cache"

    @property
    def state(self) -> Path:
        """What the installer told last, for whoever looks for engines."""
        return self.root / "state.json"

    @property
    def tries(self) -> Path:
        return self.root / "tries.json"

    def final(self, plan: Plan) -> Path:
        for name in (plan.engine, plan.name):
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} cannot be a folder's name")
        return self.root / plan.engine / plan.name

    def making(self, plan: Plan) -> Path:
        final = self.final(plan)
        return final.with_name(f".{final.name}.making")

    def installed(self) -> tuple[tuple[Path, Mark], ...]:
        """Every whole installation whose executable is there."""
        found = []
        for path in sorted(self.root.glob(f"[!.]*/[!.]*/{_MARK}")):
            try:
                mark = msgspec.json.decode(path.read_bytes(), type=Mark)
            except (OSError, msgspec.MsgspecError):
                continue
            if os.access(path.parent / mark.run, os.X_OK):
                found.append((path.parent, mark))
        return tuple(found)

    def sweep(self) -> None:
        """Removes what nobody works on. Only with the lock held."""
        for path in (*self.root.glob("[!.]*/.*.making"), *self.root.glob("[!.]*/.*.gone")):
            remove(path)
        for path in self.root.glob("[!.]*/[!.]*"):
            if path.is_dir() and not (path / _MARK).is_file():
                remove(path)

    def finish(self, making: Path, plan: Plan, run: str, at: float) -> Path:
        """What was made takes its name, on disk before and after."""
        final = self.final(plan)
        mark = Mark(plan.engine, plan.version, plan.build, run, at)
        write_atomically(making / _MARK, msgspec.json.encode(mark), 0o644)
        flush(making)
        if final.exists():
            remove(final)
        making.rename(final)
        flush(final.parent)
        return final


def open_folders(root: Path) -> Folders:
    """Its folders are made where they are missing. Raises OSError."""
    for folder, mode in ((root, 0o755), (root / ".downloads", 0o700)):
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
    return Folders(root)


@contextmanager
def locked(folders: Folders) -> Iterator[int]:
    """Holds the root's lock. The descriptor goes on to children that write there too: the lock lasts as long as the
    last of them, even when this process is killed. Raises `Busy`."""
    fd = os.open(folders.root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"another process installs into {folders.root}") from None
        yield fd
    finally:
        os.close(fd)


def remove(path: Path) -> None:
    """A folder loses its name first, so that nobody finds half of it."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    gone = path if path.name.endswith(".gone") else path.with_name(f".{path.name.lstrip('.')}.gone")
    if gone != path:
        shutil.rmtree(gone, ignore_errors=True)
        path.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def flush(path: Path) -> None:
    """The file system that `path` is on is on disk when this returns: a power cut must not leave empty files under a
    finished name."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
        libc = ctypes.CDLL(None)
        if hasattr(libc, "syncfs"):
            libc.syncfs(fd)
    finally:
        os.close(fd)
