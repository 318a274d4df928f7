"""`python -m bench.ledger.cost`: what a request costs the edge without limits, with a key's, and with all levels'.

One edge, three keys, visited in turn; CPU of the edge's process divided by what it answered, and of Redis by the same.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median

import redis

from bench import contenders, processes
from bench.edge import KEY, compiled, edge, parts
from bench.measuring import measure
from bench.workloads import WORKLOADS
from gateway.core.ledger import account, keys
from gateway.core.snapshot import Catalog, LevelLimits, Part, Scope, Tenancy
from llmgw.keys import key_hash
from llmgw.price import Dated, Price
from tenancy.core.limits import Limits

MANY = 1_000_000_000
KEYS = {"no limits": KEY, "a key's": "llmgw_bench-limited", "four levels": "llmgw_bench-levels"}
"""The second has what a key has by default; the third requests, tokens, concurrency and money at every level."""


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m bench.ledger.cost", description=__doc__.split("\n")[0])
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--seconds", type=float, default=1.5)
    options.add_argument("--workload", default="requests", choices=[w.name for w in WORKLOADS])
    options.add_argument("--compiled", action="store_true", help="on the compiled inference path")
    asked = options.parse_args()
    which = processes.cores()
    if which is None:
        print("measuring needs two cores", file=sys.stderr)
        return 2
    workload = next(w for w in WORKLOADS if w.name == asked.workload)
    with tempfile.TemporaryDirectory(prefix="llmgw-bench-") as scratch, ExitStack() as stack:
        folder = Path(scratch)
        stack.enter_context(processes.on_core(which.load))
        engine = stack.enter_context(contenders.engine(which.load))
        usual = parts(engine)
        tenancy, catalog = usual["tenancy"], usual["catalog"]
        assert isinstance(tenancy, Tenancy)
        assert isinstance(catalog, Catalog)
        other: dict[str, Part] = {"tenancy": _tenancy(tenancy), "catalog": _priced(catalog)}
        builds = compiled(lambda _: None) if asked.compiled else None
        the_edge = stack.enter_context(edge(engine, which, folder / "home", other=other, compiled=builds))
        with redis.Redis(unix_socket_path=str(folder / "home" / "run" / "redis.sock")) as client:
            for one in _levels():
                client.hset(keys.purse(account.name(one.level, one.id), one.period), mapping={"s": 0, "k": 1})
        ours = (engine.pid, the_edge.redis_pid, the_edge.contender.pid)
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in KEYS}
        for round in range(asked.rounds):
            for name, key in KEYS.items() if round % 2 == 0 else reversed(KEYS.items()):
                contender = replace(the_edge.contender, name=name.replace(" ", "-"), key=key)
                before = processes.cpu_s(the_edge.redis_pid)
                cell = measure(contender, workload, round, asked.seconds, which, ours, folder)
                if cell.errors:
                    print(f"{name}: {cell.errors} errors ({cell.fault})", file=sys.stderr)
                    return 1
                cpu_s = processes.cpu_s(the_edge.redis_pid) - before
                each = (cell.cpu_s * 1e6 / cell.answered, cpu_s * 1e6 / cell.answered, cell.in_time / cell.seconds)
                found[name].append(each)
    print("| limits | edge, CPU µs a request | Redis, CPU µs a request | requests/s |\n|---|--:|--:|--:|")
    for name, cells in found.items():
        edge_us, redis_us, rate = (median(c[i] for c in cells) for i in range(3))
        print(f"| {name} | {edge_us:.1f} | {redis_us:.1f} | {rate:,.0f} |")
    return 0


def _levels() -> tuple[LevelLimits, ...]:
    limits = Limits(MANY, MANY, MANY, 2**52)
    ids = {"organisation": "o" * 16, "team": "t" * 16, "project": "q" * 16, "key": "l" * 16}
    return tuple(LevelLimits(kind, id, limits, "2026-11") for kind, id in ids.items())


def _tenancy(usual: Tenancy) -> Tenancy:
    *above, own = _levels()
    (scope,) = usual.projects.values()
    one = usual.keys[key_hash(KEY)]
    limited = replace(one, id="m" * 16, limits=LevelLimits("key", "m" * 16, Limits(rpm=MANY, tpm=MANY)))
    all_levels = replace(one, id="l" * 16, project="q" * 16, limits=own)
    return replace(
        usual,
        keys={
            **usual.keys,
            key_hash(KEYS["a key's"]): limited,
            key_hash(KEYS["four levels"]): all_levels,
        },
        projects={
            **usual.projects,
            "q" * 16: Scope("o" * 16, "t" * 16, "q" * 16, scope.allow, limits=tuple(above)),
        },
    )


def _priced(usual: Catalog) -> Catalog:
    prices = (Dated(Price(500, 1500)),)
    return replace(usual, models={name: replace(entry, prices=prices) for name, entry in usual.models.items()})


if __name__ == "__main__":
    sys.exit(main())
