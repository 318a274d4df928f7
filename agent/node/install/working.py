"""The worker process, from the agent's side: begun, listened to, and ended when the agent has no more use for it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable

import msgspec

from agent.node.install.worker import Doing, Done, Job, Line, Lost
from agent.wire.reason import Reason

_WORKER = (sys.executable, "-P", "-m", "agent.node.install.worker")


async def work(job: Job, import_from: str | None, words: Callable[[str], None] | None = None) -> Done | Lost:
    """One job, to its end. Cancelled, the worker is killed: it leaves nothing half done under a finished name."""
    one = _One(job, import_from)
    loop = asyncio.get_running_loop()

    def heard(said: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(words or (lambda _: None), said)

    try:
        return await asyncio.to_thread(one.follow, heard)
    finally:
        one.end()


class _One:
    """Followed by a thread, as a pipe is read that may be silent for minutes."""

    def __init__(self, job: Job, import_from: str | None) -> None:
        self._job = job
        self._import_from = import_from
        self._process: subprocess.Popen[bytes] | None = None
        self._over = False
        self._lock = threading.Lock()

    def end(self) -> None:
        with self._lock:
            self._over = True
            if self._process is not None and self._process.returncode is None:
                self._process.kill()

    def follow(self, heard: Callable[[str], None]) -> Done | Lost:
        env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        if self._import_from is not None:
            env["PYTHONPATH"] = self._import_from
        pipe = subprocess.PIPE
        with self._lock:
            if self._over:
                return Lost(Reason("ended", "it was not begun"))
            # It dies with the thread that starts it: with this one, which stays until it has ended.
            self._process = subprocess.Popen(_WORKER, env=env, cwd="/", stdin=pipe, stdout=pipe)
        result: Done | Lost | None = None
        with self._process as process:
            assert process.stdin is not None
            assert process.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(msgspec.json.encode(self._job))
                process.stdin.close()
            for line in process.stdout:
                match msgspec.json.decode(line, type=Line):
                    case Doing(said):
                        heard(said)
                    case found:
                        result = found
        return result or Lost(Reason("worker_died", f"the installing process ended with status {process.returncode}"))
