"""An endpoint that keeps every rule of the kit, but for the one fault that a test names."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-of-the-stand-in-0123456789"
MODEL = "stand-in"
SLOTS = 2
MOST_BYTES = 10_000_000
CONTEXT = 1000


class StandIn(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, fault: str = "") -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.fault = fault
        self.most, self.token_s = (150, 0.008) if fault in ("", "L1", "L2") else (60, 0.004)
        """Of an answer: leaving shows only where much work waits."""
        self.slots = threading.BoundedSemaphore(SLOTS)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is no error here."""


class Left(Exception):
    pass


class Handler(BaseHTTPRequestHandler):
    server: StandIn
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None: ...

    def handle_expect_100(self) -> bool:
        return True

    def do_GET(self) -> None:
        if not self._known():
            return
        one = {"id": MODEL, "object": "model", "created": 1, "owned_by": "test", "context_length": CONTEXT}
        if self.path == "/v1/models":
            if self.broken("W4"):
                one["id"] = "other"
            return self._json({"object": "list", "data": [one]})
        if self.path == f"/v1/models/{MODEL}" and not self.broken("W5"):
            return self._json(one)
        status = 405 if self.path.endswith("completions") else 404
        self._error(200 if self.broken("E7") and status == 405 else status)

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        if length > MOST_BYTES:
            self._error(400 if self.broken("E9") else 413)
            return
        body = self.rfile.read(length)
        if not self._known():
            return
        try:
            asked = json.loads(body)
        except ValueError:
            return self._error(500 if self.broken("E4") else 400)
        if self.path == "/v1/embeddings":
            return self._embed(asked)
        if self.path not in ("/v1/chat/completions", "/v1/completions"):
            return self._error(200 if self.broken("E6") else 404)
        if asked.get("model") != MODEL and not self.broken("E3"):
            return self._error(404)
        self.chat = self.path.endswith("chat/completions")
        if self.chat and not asked.get("messages"):
            return self._error(500 if self.broken("E5") else 400)
        if asked.get("stream") not in (None, True, False) and not self.broken("E8"):
            return self._error(400)
        if self.broken("W6") and None in asked.values():
            return self._error(400)
        text = json.dumps(asked.get("messages") or asked.get("prompt"))
        if len(text) > 200_000 and self.broken("E11"):
            return self.close_connection_now()
        if text.count("x ") > CONTEXT and not self.broken("E10"):
            return self._error(400)
        try:
            self._generate(asked)
        except (Left, OSError):
            self.close_connection = True

    # -- answers

    def broken(self, *faults: str) -> bool:
        return self.server.fault in faults

    def close_connection_now(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _known(self) -> bool:
        key = self.headers.get("authorization", "").removeprefix("Bearer ")
        if key == KEY or (self.broken("E1") and not key) or (self.broken("E2") and key):
            return True
        self._error(401, f"wrong key {key}" if self.broken("E13") else "wrong key")
        return False

    def _error(self, status: int, message: str = "no") -> None:
        error = {"message": message, "type": "invalid_request_error", "code": None}
        self._json({"detail": message} if self.broken("E12") else {"error": error}, status)

    def _json(self, found: Any, status: int = 200) -> None:
        data = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def _embed(self, asked: dict[str, Any]) -> None:
        rows = [{"object": "embedding", "index": i, "embedding": [0.5, 1]} for i in range(len(asked["input"]))]
        data = rows[:1] if self.broken("W3") else rows
        self._json({"object": "list", "data": data, "usage": {"prompt_tokens": 2, "total_tokens": 2}})

    def _generate(self, asked: dict[str, Any]) -> None:
        tokens, n = min(asked.get("max_tokens") or 16, self.server.most), asked.get("n") or 1
        n = 1 if self.broken("W7", "S8") else n
        calls = bool(asked.get("tools"))
        with self.server.slots:
            if asked.get("stream"):
                return self._stream(asked, tokens, n, calls)
            for _ in range(tokens):
                self._work(self.broken("L2"))
        counts = {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + tokens}
        choices = [self._choice(i, "é" * tokens, whole=True, ending="stop") for i in range(n)]
        found = {"id": "a", "object": "chat.completion" if self.chat else "text_completion", "created": 1}
        found |= {"model": MODEL, "choices": choices, "usage": counts}
        if self.broken("W1" if self.chat else "W2"):
            del found["usage"]
        self._json(found)

    def _work(self, deaf: bool) -> None:
        """A token's time, in which a client's leaving is noticed."""
        time.sleep(self.server.token_s)
        if not deaf and select.select([self.connection], [], [], 0)[0] and not self.connection.recv(1, socket.MSG_PEEK):
            raise Left

    def _choice(self, i: int, said: str, whole: bool = False, ending: str | None = None, **more: Any) -> dict[str, Any]:
        if not self.chat:
            return {"index": i, "text": said, "finish_reason": ending}
        inner = {"content": said, **more} if said else more
        role = {"role": "assistant"} if whole else {}
        return {"index": i, "message" if whole else "delta": {**role, **inner}, "finish_reason": ending}

    def _stream(self, asked: dict[str, Any], tokens: int, n: int, calls: bool) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json" if self.broken("H1") else "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        held: list[bytes] = []
        for event in self._events(asked, tokens, n, calls):
            held.append(event if self.broken("S2") else event.replace(b"\\u00e9", "é".encode()))
            if not self.broken("H2"):
                self._out(held)
        self._out(held)
        self.close_connection = True

    def _out(self, held: list[bytes]) -> None:
        try:
            self.wfile.write(b"".join(held))
        except OSError:
            if not self.broken("L1"):
                raise
        held.clear()

    def _events(self, asked: dict[str, Any], tokens: int, n: int, calls: bool) -> Iterator[bytes]:
        def event(*choices: dict[str, Any], **more: Any) -> bytes:
            kind = "chat.completion.chunk" if self.chat else "text_completion"
            found = {"id": "a", "object": kind, "created": 1, "model": MODEL, "choices": list(choices), **more}
            if self.broken("S4"):
                del found["created"]
            return f"data: {json.dumps(found)}\n\n".encode()

        if self.chat and not self.broken("S5"):
            for i in range(n):
                yield event(self._choice(i, "", role="assistant"))
        if self.broken("S3"):
            yield b"data: : queued\n\n"
        if self.broken("S1"):
            yield b"queued\n\n"
        if calls:
            yield from self._call(event)
        for _ in range(0 if calls else tokens):
            self._work(self.broken("L1"))
            for i in range(n):
                said = event(self._choice(i, "é"))
                yield said.replace(b"\\u00e9", b"\xc3") if self.broken("S2") else said
        if self.broken("S12"):
            yield b'data: {"error": "boom"}\n\n'
            return
        for i in range(0 if self.broken("S6") else n):
            yield event(self._choice(i, "", ending="tool_calls" if calls else "stop"))
        if self.broken("S7"):
            yield event(self._choice(0, "more"))
        prompt = 8 if self.broken("H3") else 7
        if (asked.get("stream_options") or {}).get("include_usage") or self.broken("S10"):
            counts = {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}
            yield event(usage=counts)
        if not self.broken("S11"):
            yield b"data: [DONE]\n\n"

    def _call(self, event: Any) -> Iterator[bytes]:
        first = {"index": 0, "id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":'}}
        rest = {"index": 0, "function": {"arguments": '"Paris"' if self.broken("S9") else '"Paris"}'}}
        for part in (first, rest):
            yield event(self._choice(0, "", tool_calls=[part]))
