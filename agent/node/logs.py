"""Engines' logs: files that engines write by themselves, kept short from outside, read from their end.

An engine appends to a plain file: a pipe would block it when nobody reads and end it when the reader dies. The
file is shortened where it stands (the writer appends, so it goes on at the new end), also when the disk is full.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from agent.core.last_words import cleaned

_log = logging.getLogger("llmgw.agent")

LONGEST = 8 * 1024 * 1024
"""Bytes of one log before it is shortened."""
KEPT = 512 * 1024
"""Bytes of its end that are then kept beside it, as `.1`."""
_TAIL = 128 * 1024


def keep_short(path: Path, longest: int = LONGEST, kept: int = KEPT) -> None:
    """Shortens `path` when it has grown over `longest` bytes; what cannot be kept is lost, never the engine."""
    try:
        if path.stat().st_size <= longest:
            return
        end = _end(path, kept)
    except OSError:
        return
    older = path.with_name(f"{path.name}.1")
    try:
        older.write_bytes(end)
        older.chmod(0o600)
    except OSError as e:
        _log.warning("the end of %s could not be kept: %s", path.name, e)
        older.unlink(missing_ok=True)
    try:
        os.truncate(path, 0)
    except OSError as e:
        _log.warning("%s could not be shortened: %s", path.name, e)


def tail(path: Path, lines: int, secrets: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Its last lines, cleaned; the shortened part is read too where the rest is not enough."""
    parts = []
    for file in (path.with_name(f"{path.name}.1"), path):
        try:
            parts.append(_end(file, _TAIL))
        except OSError:
            continue
    return cleaned(b"".join(parts), secrets, lines)


def remove(path: Path) -> None:
    for file in (path, path.with_name(f"{path.name}.1")):
        file.unlink(missing_ok=True)


def _end(path: Path, count: int) -> bytes:
    with path.open("rb") as f:
        size = os.fstat(f.fileno()).st_size
        f.seek(max(0, size - count))
        return f.read(count)
