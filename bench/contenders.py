"""Who is measured beside the edge: nobody in between (direct), and nginx where it is installed."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from bench import processes
from bench.programs import program


@dataclass(frozen=True, slots=True)
class Contender:
    """One process that answers `/v1/chat/completions` on a port of 127.0.0.1."""

    name: str
    port: int
    pid: int
    key: str = "none"


@dataclass(frozen=True, slots=True)
class Engine:
    """The mock engine, on several ports so that a router has something to choose from."""

    pid: int
    ports: tuple[int, ...]


class CannotStart(Exception):
    """Who did not come up, and the end of what it said."""


@contextmanager
def engine(core: int, ports: int = 2) -> Iterator[Engine]:
    process = processes.start((program("engine"), "--ports", str(ports)), core, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield Engine(process.pid, tuple(int(process.stdout.readline()) for _ in range(ports)))
    finally:
        processes.end(process)


def direct(engine: Engine) -> Contender:
    return Contender("direct", engine.ports[0], engine.pid)


def nginx_binary() -> str | None:
    return shutil.which("nginx")


@contextmanager
def nginx(engine: Engine, core: int, folder: Path) -> Iterator[Contender]:
    """An unbuffered proxy in one process: what bytes alone cost."""
    binary = nginx_binary()
    assert binary is not None
    folder.mkdir()
    port = free_port()
    config = folder / "nginx.conf"
    config.write_text(_nginx(port, engine.ports, folder))
    log = folder / "error.log"
    with log.open("wb") as errors:
        process = processes.start((binary, "-c", config, "-p", folder, "-e", log), core, stderr=errors)
    try:
        wait_until_answers("nginx", process, port, "/health", log)
        yield Contender("nginx", port, process.pid)
    finally:
        processes.end(process)


def _nginx(port: int, engines: tuple[int, ...], folder: Path) -> str:
    servers = " ".join(f"server 127.0.0.1:{p};" for p in engines)
    temporary = " ".join(
        f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return f"""
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 1000000000; keepalive_timeout 300s; {temporary}
  client_max_body_size 64m; client_body_buffer_size 256k;
  upstream engines {{ least_conn; {servers} keepalive 256; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://engines; proxy_http_version 1.1; proxy_set_header Connection ""; tcp_nodelay on;
      proxy_buffering off; proxy_request_buffering off;
    }}
  }}
}}
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def wait_until_answers(
    name: str, process: subprocess.Popen[bytes], port: int, path: str, log: Path, limit_s: float = 30.0
) -> None:
    """Until `path` is answered 200; raises `CannotStart` with the end of the log."""
    deadline = time.monotonic() + limit_s
    said = "nothing"
    while process.poll() is None and time.monotonic() < deadline:
        connection = HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            said = f"{answer.status} {answer.read(300).decode(errors='replace')}"
            if answer.status == 200:
                return
        except (OSError, HTTPException) as e:
            said = str(e)
        finally:
            connection.close()
        time.sleep(0.05)
    state = f"it answered {path} with {said}" if process.poll() is None else f"it exited {process.returncode}"
    raise CannotStart(f"{name} did not come up: {state}\n{log.read_text(errors='replace')[-2000:]}")
