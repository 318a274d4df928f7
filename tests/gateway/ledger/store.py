"""A Redis that a test may kill, start again, and empty."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import redis

from llmgw.up import redis as redis_server


class Store:
    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="llmgw-store-"))
        self.socket = self.folder / "redis.sock"
        self.url = f"unix://{self.socket}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        binary = redis_server.binary()
        assert binary is not None
        self._process = subprocess.Popen(
            [binary, *redis_server.arguments(self.socket, self.folder)], stdout=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 10
        while True:
            try:
                with self.client() as client:
                    client.ping()
                    return
            except redis.RedisError:
                assert time.monotonic() < deadline
                time.sleep(0.01)

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url)

    def kill(self, number: int = signal.SIGKILL) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(10)
        self.socket.unlink(missing_ok=True)

    def hang(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def empty(self) -> None:
        """What it kept on disk is gone."""
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)
