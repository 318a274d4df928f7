"""The edge as a contender: the real process, from a state directory as the control side leaves it, everything on."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis

from bench import processes
from bench.contenders import CannotStart, Contender, Engine, wait_until_answers
from bench.processes import Cores
from bench.requests import MODEL, PACED
from gateway.compiling import building
from gateway.core import snapshot
from gateway.core.record import Settlement, decode
from gateway.core.snapshot import Catalog, Endpoint, Endpoints, KeyEntry, ModelEntry, Part, Policies, Scope, Tenancy
from llmgw import machine, secrets
from llmgw.keys import key_hash
from llmgw.up import redis as redis_server

KEY = "llmgw_bench-key-of-the-benchmark-and-nothing-else"
OTHER_KEYS = 1000
ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Edge:
    """A running edge, its Redis, and where its books are."""

    contender: Contender
    redis_pid: int
    spool: Path

    def settled(self) -> int:
        """How many requests have left their settlement in the books so far."""
        lines = (line for path in self.spool.glob("*.jsonl") for line in path.read_bytes().splitlines())
        return sum(isinstance(decode(line), Settlement) for line in lines)


@contextmanager
def edge(
    engine: Engine,
    which: Cores,
    folder: Path,
    run: Sequence[str] = ("-m", "gateway.edge"),
    other: Mapping[str, Part] | None = None,
    root: Path = ROOT,
    compiled: Path | None = None,
) -> Iterator[Edge]:
    """The edge on its core, with Redis on the load's. `run` may put a profiler in between, `other` parts of the
    snapshot take the place of the usual ones, `root` is the checkout whose edge it is, `compiled` the folder of the
    compiled form that it takes."""
    this = _state_directory(folder)
    with ExitStack() as stack:
        redis_pid = stack.enter_context(_redis(this, which.load))
        _publish(this, {**parts(engine), **(other or {})})
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=2048))
        port = listener.getsockname()[1]
        log = this.logs_dir / "edge.log"
        output = stack.enter_context(log.open("wb"))
        environment = {k: v for k, v in os.environ.items() if not k.startswith("LLMGW_")}
        environment |= {"LLMGW_HOME": str(this.home), "LLMGW_LISTEN_FD": str(listener.fileno()), "PORT": str(port)}
        environment["LLMGW_COMPILED"] = str(compiled) if compiled is not None else "off"
        process = processes.start(
            (sys.executable, *run),
            which.proxy,
            env=environment,
            stdout=output,
            stderr=output,
            pass_fds=(listener.fileno(),),
            cwd=root,
        )
        stack.callback(processes.end, process)
        wait_until_answers("the edge", process, port, "/ready", log)
        name = "edge" if compiled is None else "compiled"
        yield Edge(Contender(name, port, process.pid, KEY), redis_pid, this.spool_dir)


def compiled(say: Callable[[str], None]) -> Path:
    """The folder of the compiled form, which is made where it is missing. Raises `CannotStart`."""
    where = ROOT / "build" / "compiled"
    try:
        building.build(where, say)
    except building.CannotCompile as e:
        raise CannotStart(str(e)) from None
    return where


def _state_directory(folder: Path) -> machine.Machine:
    this = machine.Machine(home=folder)
    for path in (this.home, this.run_dir, this.home / "redis", this.logs_dir):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in ("engine", "chat"):
        secrets.read_or_make(this.secrets_dir, name)
    return this


@contextmanager
def _redis(this: machine.Machine, core: int) -> Iterator[int]:
    binary = redis_server.binary()
    if binary is None:
        raise CannotStart("the edge needs a Redis: install the one-machine extra (make up), or redis-server")
    path = this.run_dir / "redis.sock"
    process = processes.start((binary, *redis_server.arguments(path, this.home / "redis")), core)
    try:
        deadline = time.monotonic() + 10
        while not path.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise CannotStart("Redis did not come up in 10 s")
            time.sleep(0.01)
        yield process.pid
    finally:
        processes.end(process)


def _publish(this: machine.Machine, parts: Mapping[str, Part]) -> None:
    """The four parts, as `gateway.control` would put them."""
    with redis.Redis.from_url(this.redis_url) as client:
        for name, part in parts.items():
            client.set(snapshot.PREFIX + name, snapshot.encode(part))
            client.hset(snapshot.VERSIONS, name, part.version)
            client.publish(snapshot.CHANNEL, name)


def parts(engine: Engine) -> dict[str, Part]:
    """A key among a thousand others, and each model on a replica per port of the mock engine."""
    entry = KeyEntry(id="k" * 16, name="bench", project="p" * 16, allow=(MODEL, PACED))
    keys = {key_hash(f"llmgw_other-{i}"): KeyEntry(f"{i:016x}", f"other {i}", "p" * 16) for i in range(OTHER_KEYS)}
    projects = {"p" * 16: Scope("o" * 16, "t" * 16, "p" * 16, allow=(MODEL, PACED))}
    replicas = tuple(
        Endpoint(f"r-{m}{i:09x}", model, "127.0.0.1", port, node=f"node-{i}", parallel=1000)
        for m, model in enumerate((MODEL, PACED))
        for i, port in enumerate(engine.ports)
    )
    return {
        "tenancy": Tenancy(1, keys | {key_hash(KEY): entry}, projects),
        "catalog": Catalog(1, {m: ModelEntry(m, state="serving", context_length=32768) for m in (MODEL, PACED)}),
        "endpoints": Endpoints(1, replicas),
        "policies": Policies(1),
    }
