"""Somebody's own receiver of webhooks: a server on a socket that keeps what it gets and answers as it is told."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        return json.loads(self.body)


@dataclass
class Receiver:
    """`answers`: what the next requests get, (status, headers, body); then 200 to all."""

    got: list[Received] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)
    silent_s: float = 0.0

    def __enter__(self) -> Receiver:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def url(self, path: str = "/llmgw") -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}{path}"

    def _handler(self) -> Callable[..., BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.got.append(Received(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                time.sleep(receiver.silent_s)
                status, headers, text = receiver.answers.pop(0) if receiver.answers else (200, {}, b"ok")
                try:
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.send_header("content-length", str(len(text)))
                    self.end_headers()
                    self.wfile.write(text)
                except OSError:
                    pass  # it did not wait

            def log_message(self, *_: object) -> None:
                pass

        return Handler
