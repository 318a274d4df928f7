"""The agent's folder: where everything that one agent keeps is, and the lock that says one agent is enough."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


class HomeTaken(Exception):
    """Another agent works in this folder."""


@dataclass(frozen=True, slots=True)
class Home:
    """Absolute paths in one agent's folder. `id` tells our processes from another agent's on the same machine."""

    path: Path
    id: str

    @property
    def settings(self) -> Path:
        return self.path / "agent.yaml"

    @property
    def shards(self) -> Path:
        return self.path / "shards"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def weights(self) -> Path:
        return self.path / "weights"

    @property
    def scratch(self) -> Path:
        return self.path / "scratch"

    @property
    def engines(self) -> Path:
        """Those that were installed here (`agent.node.install`); made when the first one is."""
        return self.path / "engines"

    @property
    def taken(self) -> Path:
        """The newest order that was taken up of each store (store, term, generation)."""
        return self.path / "taken.json"

    @property
    def order(self) -> Path:
        """The newest order itself (`agent.node.kept`)."""
        return self.path / "order.json"

    @property
    def status(self) -> Path:
        """What `llmgw-agent status` shows of the link."""
        return self.path / "status.json"

    @property
    def agent_log(self) -> Path:
        return self.logs / "agent.log"


def open_home(path: Path) -> Home:
    """The home at `path`; its folders and its id are made where they are missing."""
    path = path.expanduser().absolute()
    for folder, mode in (
        (path, 0o755),  # an engine's own user passes through to its scratch folder and its weights
        (path / "shards", 0o700),
        (path / "logs", 0o700),
        (path / "weights", 0o755),
        (path / "scratch", 0o755),
    ):
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
    return Home(path, _id(path / "id"))


@contextmanager
def only_agent(home: Home) -> Iterator[None]:
    """Holds the home's lock; raises `HomeTaken`. The lock goes with the process, however it ends."""
    fd = os.open(home.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
            raise HomeTaken(f"another agent (pid {pid}) works in {home.path}; one agent a folder") from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(fd)


def write_atomically(path: Path, data: bytes, mode: int = 0o600) -> None:
    """The file is the old one or the new one, whatever happens; on disk when this returns. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _id(path: Path) -> str:
    for _ in range(2):
        try:
            found = path.read_text().strip()
        except FileNotFoundError:
            found = ""
        if found:
            return found
        write_atomically(path, secrets.token_hex(8).encode())
    return path.read_text().strip()
