"""A whole cluster on this machine, started by the command that a newcomer types."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from llmgw.up.supervisor import end_leftovers

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass
class Cluster:
    """`manage.py up` on a home of its own; `output` is what it printed."""

    home: Path
    process: subprocess.Popen[str] | None = None
    output: list[str] = field(default_factory=list)
    url: str = ""
    key: str = ""
    password: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    clients: list[openai.OpenAI] = field(default_factory=list)
    prefix: tuple[str, ...] = ()
    """Before each command: `ip netns exec NAME` puts the cluster into a network namespace."""

    def start(self, *arguments: str, seconds: float = 150) -> None:
        """Until it serves; the first start learns the key and the password that are shown once."""
        plain = {k: v for k, v in os.environ.items() if not k.startswith(("LLMGW_", "DJANGO_"))}
        self.environment = {
            **plain,
            "LLMGW_HOME": str(self.home),
            "PORT": "0",
            "LINK_PORT": "0",
            "METRICS_PORT": "0",
            **{k: v for k, v in self.environment.items() if k.endswith("PORT") or k == "HOST"},
        }
        self.output = []
        self.process = subprocess.Popen(
            [*self.prefix, sys.executable, "manage.py", "up", *arguments],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        threading.Thread(target=self._read, args=(self.process,), daemon=True).start()
        self.until(lambda: "Ctrl-C ends everything" in self.text or self.process.poll() is not None, seconds, self.text)
        assert self.process.poll() is None, self.text
        self.url = re.search(r"portal\s+(\S+)", self.text)[1]
        self.environment["PORT"] = self.url.rsplit(":", 1)[1]
        if found := re.search(r"key\s+(llmgw_\S+)", self.text):
            self.key = found[1]
        if found := re.search(r"password (\S+)", self.text):
            self.password = found[1]
        for name, variable in (("link", "LINK_PORT"), ("metrics", "METRICS_PORT")):
            self.environment[variable] = self.environ_of(name)[variable]

    def stop(self, sign: signal.Signals = signal.SIGINT, seconds: float = 60) -> int:
        assert self.process is not None
        self.process.send_signal(sign)
        return self.process.wait(seconds)

    def close(self) -> None:
        """End it whatever happened: in order where it can be, by the supervisor's own broom where not."""
        for client in self.clients:
            client.close()
        if self.process is not None and self.process.poll() is None:
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        end_leftovers(self.home, lambda sentence: None)

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self.output.append(line)

    @property
    def text(self) -> str:
        return "".join(self.output)

    def pid(self, component: str) -> int | None:
        """The process that the supervisor runs as `component`."""
        marker = f":{component}".encode()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            home = f"LLMGW_HOME={self.home}".encode()
            if home in variables and any(v.startswith(b"LLMGW_UP=") and v.endswith(marker) for v in variables):
                return int(pid)
        return None

    def environ_of(self, component: str) -> dict[str, str]:
        pid = self.pid(component)
        assert pid is not None
        lines = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def kill(self, component: str) -> int:
        pid = self.pid(component)
        assert pid is not None, f"{component} does not run"
        os.kill(pid, signal.SIGKILL)
        return pid

    def command(self, *arguments: str, code: int = 0) -> Any:
        """A `manage.py` command's JSON; `code` is the exit status that is expected."""
        done = subprocess.run(
            [*self.prefix, sys.executable, "manage.py", *arguments, "--json"],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout) if done.stdout.strip() else None

    def until(self, condition: Callable[[], Any], seconds: float = 30, hint: str = "") -> Any:
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < deadline, f"not within {seconds} s {hint}\n{self.text[-3000:]}"
            time.sleep(0.05)
        return found

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Straight from the store, as an auditor would read it."""
        connection = sqlite3.connect(f"file:{self.home / 'db.sqlite3'}?mode=ro", uri=True, timeout=20)
        try:
            return connection.execute(query, values).fetchall()
        finally:
            connection.close()

    def usage(self, request_id: str) -> list[dict[str, Any]]:
        columns = "request_id, outcome, prompt_tokens, completion_tokens, estimated, replica, status"
        found = self.rows(f"SELECT {columns} FROM gateway_usage WHERE request_id = ?", request_id)
        return [dict(zip(columns.split(", "), row, strict=True)) for row in found]

    def engine_pid(self, model: str = "tiny") -> int:
        """The process of the model's ready engine."""
        query = (
            "SELECT s.pid FROM fleet_shard s JOIN fleet_replica r ON r.id = s.replica_id"
            " WHERE r.model = ? AND s.observed = 'ready' AND s.pid IS NOT NULL"
        )
        return int(self.until(lambda: self.rows(query, model), 20, "no engine is ready")[0][0])

    def client(self, **options: Any) -> openai.OpenAI:
        defaults = {"api_key": self.key, "max_retries": 0, "timeout": 30}
        made = openai.OpenAI(base_url=f"{self.url}/v1", **{**defaults, **options})
        self.clients.append(made)
        return made

    def post(self, path: str, body: Any, key: str | None = None, **options: Any) -> httpx.Response:
        return httpx.post(
            f"{self.url}{path}",
            headers={"Authorization": f"Bearer {self.key if key is None else key}"},
            **({"content": body} if isinstance(body, (bytes, str)) else {"json": body}),
            timeout=30,
            **options,
        )

    def chat(self, question: str = "3+4=?", **extra: Any) -> httpx.Response:
        body = {"model": "tiny", "temperature": 0, "messages": [{"role": "user", "content": question}], **extra}
        return self.post("/v1/chat/completions", body)

    def serves(self) -> bool:
        try:
            return self.chat().status_code == 200
        except httpx.HTTPError:
            return False


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """One cluster for all tests that leave it as they found it."""
    with tempfile.TemporaryDirectory(prefix="llmgw-e2e-") as folder:
        one = Cluster(Path(folder))
        try:
            one.start()
            one.command("config", "set", "limits.default_rpm", "0")  # load comes from the one key that there is
            one.command("config", "set", "limits.default_tpm", "0")
            yield one
        finally:
            one.close()
