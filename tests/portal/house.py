"""A house for browsers: the real web process on its unix socket, the real edge before it, an engine by script."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx

from gateway.core import snapshot
from tests.gateway.edges import EdgeProcess

ROOT = Path(__file__).resolve().parents[2]
ANSWERS: dict[str, str] = {}
"""What the engine answers to a message; anything else is counted to, slowly."""


def environment(home: Path, redis_url: str, **more: str) -> dict[str, str]:
    plain = {k: v for k, v in os.environ.items() if not k.startswith("LLMGW_")}
    return {
        **plain,
        "LLMGW_HOME": str(home),
        "LLMGW_REDIS": redis_url,
        "DJANGO_SETTINGS_MODULE": "llmgw.settings",
        **more,
    }


def prepare(home: Path, redis_url: str) -> dict[str, str]:
    """A store with everything in it; the ids of the administrator and of the project."""
    home.mkdir(parents=True, exist_ok=True)
    out = ""
    for argv in (["manage.py", "migrate", "-v0"], ["-m", "tests.portal.seed"]):
        done = subprocess.run(
            [sys.executable, *argv],
            env=environment(home, redis_url),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        out = done.stdout
    return json.loads(out.splitlines()[-1])


@dataclass
class WebProcess:
    """`python -m llmgw.web`, on its unix socket or on TCP by an inherited descriptor."""

    home: Path
    redis_url: str
    url: str = ""
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return (self.home / "web.log").read_text()

    def start(self, *, tcp: bool = False) -> None:
        more: dict[str, str] = {}
        keep: list[int] = []
        listener = socket.create_server(("127.0.0.1", 0)) if tcp else None
        if listener is not None:
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            more["LLMGW_LISTEN_FD"] = str(listener.fileno())
            keep = [listener.fileno()]
        with (self.home / "web.log").open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "llmgw.web"],
                env=environment(self.home, self.redis_url, **more),
                cwd=ROOT,
                pass_fds=keep,
                stdout=out,
                stderr=out,
            )
        if listener is not None:
            listener.close()

    def wait_until_it_answers(self, url: str) -> None:
        deadline = time.monotonic() + 40
        while True:
            assert self.process is not None
            assert self.process.poll() is None, self.log
            try:
                if httpx.get(url + "/words.js", timeout=10).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            assert time.monotonic() < deadline, self.log
            time.sleep(0.1)

    def stop(self) -> float:
        """SIGTERM; the seconds that it took."""
        assert self.process is not None
        began = time.monotonic()
        self.process.terminate()
        self.process.wait(20)
        return time.monotonic() - began


@dataclass
class Engine:
    """Streams what `ANSWERS` says, and counts how many clients left in the middle."""

    port: int = 0
    left: int = 0
    asked: list[dict[str, object]] = field(default_factory=list)
    server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None: ...

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                engine.asked.append(body)
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                said = body["messages"][-1]["content"]
                text = ANSWERS.get(said)
                pieces = (
                    [f"{n} " for n in range(200)] if text is None else [text[i : i + 5] for i in range(0, len(text), 5)]
                )
                try:
                    for piece in pieces:
                        self._say({"choices": [{"index": 0, "delta": {"content": piece}}]})
                        time.sleep(0.05 if text is None else 0.001)
                    self._say({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": len(pieces)}})
                    self.wfile.write(b"data: [DONE]\n\n")
                except OSError:
                    engine.left += 1
                self.close_connection = True

            def _say(self, chunk: dict[str, object]) -> None:
                named = {"id": "c", "object": "chat.completion.chunk", "model": "tiny", **chunk}
                self.wfile.write(b"data: " + json.dumps(named).encode() + b"\n\n")

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        assert self.server is not None
        self.server.shutdown()
        self.server.server_close()


@dataclass
class House:
    home: Path
    web: WebProcess
    edge: EdgeProcess
    engine: Engine
    ids: dict[str, str]

    @property
    def url(self) -> str:
        return self.edge.url

    def serve(self) -> None:
        """Publishes the model `tiny` on the engine, for the administrator's project."""
        project = self.ids["project"]
        self.edge.publish(
            tenancy=snapshot.Tenancy(
                projects={project: snapshot.Scope("o", "t", project)}, people=frozenset({self.ids["person"]})
            ),
            catalog=snapshot.Catalog(models={"tiny": snapshot.ModelEntry("tiny", state="serving")}),
            endpoints=snapshot.Endpoints(
                endpoints=(snapshot.Endpoint("r-0000000000", "tiny", "127.0.0.1", self.engine.port, "node-1"),)
            ),
            policies=snapshot.Policies(),
        )


def open_house(home: Path, redis_url: str) -> House:
    ids = prepare(home, redis_url)
    house = House(home, WebProcess(home, redis_url), EdgeProcess(home, redis_url), Engine(), ids)
    house.web.start()
    house.engine.start()
    house.edge.start()
    house.web.wait_until_it_answers(house.url)
    house.serve()
    return house


def close_house(house: House) -> None:
    if house.edge.process is not None and house.edge.process.poll() is None:
        house.edge.kill(15)
    if house.web.process is not None and house.web.process.poll() is None:
        house.web.stop()
    house.engine.stop()
