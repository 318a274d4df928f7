"""A GGUF file on disk, looked at through a memory map so that only its header is read."""

from __future__ import annotations

import mmap
from pathlib import Path

from agent.core import gguf
from agent.wire.reason import Reason


def problem(path: Path) -> Reason | None:
    """Why no engine can be started on the file; None when nothing speaks against it."""
    try:
        with path.open("rb") as f:
            if path.stat().st_size == 0:
                return gguf.problem(b"", str(path))
            with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return gguf.problem(data, str(path))
    except FileNotFoundError:
        return Reason("weights_missing", f"the model file {path} does not exist")
    except IsADirectoryError:
        return Reason("weights_not_gguf", f"{path} is a folder, where a GGUF file was wanted")
    except (OSError, ValueError) as e:
        return Reason("weights_unreadable", f"the model file {path} cannot be read: {e}")
