"""What a tool of the machine prints: in the language its readers know, and not for longer than they can wait."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

MOST_BYTES = 16 * 2**20


def said(argv: Sequence[str], timeout_s: float) -> str | None:
    """Its output; None where it is not there, failed, or took too long."""
    try:
        done = subprocess.run(
            argv,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout[:MOST_BYTES].decode(errors="replace") if done.returncode == 0 else None
