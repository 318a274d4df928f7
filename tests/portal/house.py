"""The web process for browsers: real, on a TCP socket that it inherits as it would from the supervisor."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class House:
    url: str
    process: subprocess.Popen[bytes]
    log: Path


def environment(home: Path, redis_url: str, **more: str) -> dict[str, str]:
    plain = {k: v for k, v in os.environ.items() if not k.startswith("LLMGW_") and k != "DJANGO_SETTINGS_MODULE"}
    return {
        **plain,
        "LLMGW_HOME": str(home),
        "LLMGW_REDIS": redis_url,
        "DJANGO_SETTINGS_MODULE": "llmgw.settings",
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "",
        **more,
    }


def prepare(home: Path, redis_url: str) -> None:
    """A store with everything in it."""
    env = environment(home, redis_url)
    home.mkdir(parents=True, exist_ok=True)
    for argv in (["manage.py", "migrate", "-v0"], ["-m", "tests.portal.seed"]):
        done = subprocess.run([sys.executable, *argv], env=env, cwd=ROOT, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr


def open_house(home: Path, redis_url: str, **more: str) -> House:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    env = environment(home, redis_url, LLMGW_LISTEN_FD=str(listener.fileno()), **more)
    log = home / "web.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "llmgw.web"], env=env, cwd=ROOT, pass_fds=[listener.fileno()], stdout=out, stderr=out
        )
    listener.close()
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 30
    while True:
        try:
            urllib.request.urlopen(url + "/words.js", timeout=5).read()
            return House(url, process, log)
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, f"the web process did not answer: {log.read_text()}"
            time.sleep(0.1)
