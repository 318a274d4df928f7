"""The real link process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time


class Link:
    """`python -m fleet.link` on a socket that stays bound over its restarts, as the supervisor does it."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.socket = socket.socket()
        self.socket.bind((host, 0))
        self.socket.listen(128)
        self.port: int = self.socket.getsockname()[1]
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        fd = self.socket.fileno()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fleet.link"],
            env={**os.environ, "LLMGW_LISTEN_FD": str(fd)},
            pass_fds=(fd,),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("agent link on"):
            self.close()
            raise AssertionError(f"the link said {line!r}")

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> float:
        """Ends it in order; the seconds that took."""
        begun = time.monotonic()
        self._end(signal.SIGTERM)
        return time.monotonic() - begun

    def close(self) -> None:
        if self.process is not None:
            self.kill()
        self.socket.close()

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(15)
            if self.process.stdout is not None:
                self.process.stdout.close()
            self.process = None
