"""A collector that takes OTLP over HTTP by OpenTelemetry's own messages: what Jaeger or Tempo would have been sent."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import threading
import time
from collections.abc import Iterator
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.raw = b""
        self.resources: list[dict[str, Any]] = []
        self.url = ""

    def wait_for(self, count: int, timeout_s: float = 10) -> list[Any]:
        """`count` spans or more, by the time they began."""
        deadline = time.monotonic() + timeout_s
        while len(self.spans) < count:
            assert time.monotonic() < deadline, f"{len(self.spans)} of {count} spans came"
            time.sleep(0.02)
        return sorted(self.spans, key=lambda s: (s.start_time_unix_nano, s.name != "inference"))

    def named(self, count: int, name: str) -> list[Any]:
        return [s for s in self.wait_for(count) if s.name.startswith(name)]


def attributes(span: Any) -> dict[str, Any]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}


@contextlib.contextmanager
def collector() -> Iterator[Collector]:
    found = Collector()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            data = gzip.decompress(data) if self.headers.get("content-encoding") == "gzip" else data
            assert self.path == "/v1/traces"
            message = ExportTraceServiceRequest()
            message.ParseFromString(data)
            found.raw += data
            for resource in message.resource_spans:
                found.resources.append({a.key: a.value.string_value for a in resource.resource.attributes})
                for scope in resource.scope_spans:
                    found.spans.extend(scope.spans)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
