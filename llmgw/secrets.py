"""This machine's secrets: files of mode 0600 in the state directory, made once and never shown.

`django` signs sessions, `engine` derives replicas' keys, `chat` signs the portal's chat tokens.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def read_or_make(folder: Path, name: str) -> str:
    """The secret `name` in `folder`; made of 32 random bytes, atomically, when it is not there."""
    path = folder / name
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        pass
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = folder / f".{name}.{os.getpid()}.{secrets.token_hex(4)}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w") as f:
        f.write(secrets.token_urlsafe(32))
        f.flush()
        os.fsync(f.fileno())
    try:
        os.link(temporary, path)  # fails when another process was first: then its secret is the one
    except FileExistsError:
        pass
    finally:
        temporary.unlink()
    return path.read_text().strip()
