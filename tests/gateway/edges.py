"""A real edge process for tests: a home of its own, a snapshot that a test publishes, its books to look into."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import redis

from gateway.core import record, snapshot
from llmgw.keys import key_hash

KEY = "llmgw_" + "k" * 43
OTHER_KEY = "llmgw_" + "o" * 43
"""A key of another project, which may use nothing but `orchid-mini`."""
AUTH = {"authorization": f"Bearer {KEY}"}
MODEL = "orchid-8b"
ROOT = Path(__file__).resolve().parents[2]
_versions = itertools.count(int(time.time()))


def scope(name: str = "p1") -> snapshot.Scope:
    return snapshot.Scope("o1", "t1", name)


def tenancy() -> snapshot.Tenancy:
    return snapshot.Tenancy(
        keys={
            key_hash(KEY): snapshot.KeyEntry("k1", "test", "p1", "a1"),
            key_hash(OTHER_KEY): snapshot.KeyEntry("k2", "narrow", "p2", allow=("orchid-mini",)),
        },
        projects={"p1": scope(), "p2": scope("p2")},
        people=frozenset({"a1"}),
    )


def catalog(**models: snapshot.ModelEntry) -> snapshot.Catalog:
    serving = snapshot.ModelEntry(MODEL, ("helper",), "serving", kinds=("chat", "completions", "embeddings"))
    return snapshot.Catalog(models={MODEL: serving, **models})


def endpoint(port: int, replica: str = "r-0000000001", model: str = MODEL, **fields: Any) -> snapshot.Endpoint:
    """`parallel` is large unless a test is about places: then it says so."""
    return snapshot.Endpoint(replica, model, "127.0.0.1", port, "node-1", **{"parallel": 1000, **fields})


@dataclass
class EdgeProcess:
    """`python -m gateway.edge` on a free port."""

    home: Path
    redis_url: str
    process: subprocess.Popen[bytes] | None = None
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self, wait: bool = True, **environ: str) -> None:
        sock = socket.create_server(("127.0.0.1", self.port), backlog=512)
        self.port = sock.getsockname()[1]
        os.set_inheritable(sock.fileno(), True)
        env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("LLMGW_") or k == "LLMGW_COMPILED"},
            "LLMGW_HOME": str(self.home),
            "LLMGW_REDIS": self.redis_url,
            "LLMGW_LISTEN_FD": str(sock.fileno()),
            **environ,
        }
        self.log = (self.home / "edge.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gateway.edge"],
            cwd=ROOT,
            env=env,
            pass_fds=[sock.fileno()],
            stderr=self.log,
            stdout=self.log,
        )
        sock.close()
        if wait:
            self.wait_for("/health")

    def wait_for(self, path: str, timeout_s: float = 15) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            assert self.process is not None
            assert self.process.poll() is None, self.words()
            try:
                if self.get(path)[0] == 200:
                    return
            except OSError:
                pass
            assert time.monotonic() < deadline, self.words()
            time.sleep(0.02)

    def get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def words(self) -> str:
        return (self.home / "edge.log").read_text()[-4000:]

    def kill(self, number: int = signal.SIGKILL) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(10)
        self.log.close()
        return code

    # -- the snapshot

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.redis_url)

    def publish(self, wait: bool = True, **parts: snapshot.Part) -> dict[str, int]:
        """Each part under a new version; returns when the edge answers from them."""
        versions = {}
        with self.client() as client:
            pipe = client.pipeline()
            for name, part in parts.items():
                version = versions[name] = next(_versions)
                pipe.set(snapshot.PREFIX + name, snapshot.encode(replace(part, version=version)))
                pipe.hset(snapshot.VERSIONS, name, str(version))
            pipe.publish(snapshot.CHANNEL, next(iter(parts)))
            pipe.execute()
        deadline = time.monotonic() + 5
        while wait:
            shown = json.loads(self.get("/ready")[1])["versions"]
            if all(shown[name] == version for name, version in versions.items()):
                break
            assert time.monotonic() < deadline, shown
            time.sleep(0.005)
        return versions

    def serve(self, *endpoints: snapshot.Endpoint, **policies: Any) -> None:
        """The usual world with these endpoints."""
        self.publish(
            tenancy=tenancy(),
            catalog=catalog(),
            endpoints=snapshot.Endpoints(endpoints=endpoints),
            policies=snapshot.Policies(**policies),
        )

    # -- the books

    def books(self) -> dict[str, tuple[record.Intent, record.Settlement | None]]:
        """By request id, over all segments in the spool."""
        intents: dict[str, record.Intent] = {}
        settled: dict[str, record.Settlement] = {}
        for path in sorted((self.home / "spool").glob("*.jsonl")):
            for line in path.read_bytes().splitlines():
                match record.decode(line):
                    case record.Intent() as intent:
                        intents[intent.id] = intent
                    case record.Settlement() as settlement:
                        assert settlement.id not in settled, "settled twice"
                        settled[settlement.id] = settlement
        return {i: (intent, settled.get(i)) for i, intent in intents.items()}

    def settlement(self, request_id: str, timeout_s: float = 3) -> record.Settlement:
        deadline = time.monotonic() + timeout_s
        while True:
            _, found = self.books().get(request_id, (None, None))
            if found is not None:
                return found
            assert time.monotonic() < deadline, f"{request_id} is not settled"
            time.sleep(0.01)

    def last(self, timeout_s: float = 3, before: frozenset[str] | set[str] = frozenset()) -> record.Settlement:
        """The settlement of the newest request that is not among `before`."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = [i for i, (_, s) in self.books().items() if i not in before and s is not None]
            if found:
                return self.settlement(max(found))
            assert time.monotonic() < deadline, "nothing was settled"
            time.sleep(0.01)

    def live(self) -> dict[str, Any]:
        with self.client() as client:
            found: dict[str, Any] = {}
            for key in client.scan_iter("llmgw:live:*"):
                found = json.loads(client.get(key) or b"{}")
            return found

    def memory_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], **fields}


def events(body: bytes) -> list[Any]:
    """The data of each event of a stream: JSON, or the text `[DONE]`."""
    found = []
    for raw in body.replace(b"\r\n", b"\n").split(b"\n\n"):
        lines = [line[5:].removeprefix(b" ") for line in raw.split(b"\n") if line.startswith(b"data:")]
        if lines:
            data = b"\n".join(lines)
            found.append("[DONE]" if data == b"[DONE]" else msgspec.json.decode(data))
    return found


def content(body: bytes) -> str:
    return "".join(
        (choice.get("delta") or {}).get("content") or ""
        for event in events(body)
        if event != "[DONE]"
        for choice in event.get("choices", [])
    )
