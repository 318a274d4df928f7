"""`python -m bench.planner`: how long a pass of the planner takes, with its load from the store, as fleets grow.

A steady pass is what runs every two seconds: nodes have sent heartbeats since the last one, every fifteenth has told
its facts anew, and there is nothing to do. Placing everything afresh is measured apart. Times are the middle of
several; the first pass of a process, which decodes all facts, is told by itself.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleet.core.world import WantedModel, World

GIB = 1024**3
CARDS = 8
PASSES = 7
REPORTS = 15
"""A report every 30 s where a pass comes every 2 s: of so many nodes one has told its facts anew."""


@dataclass(frozen=True, slots=True)
class Row:
    """One size of fleet. Times are milliseconds."""

    nodes: int
    replicas: int
    first: float
    steady: float
    steady_cpu: float
    """What this process computed meanwhile: on a busy machine the truer figure. SQLite computes in it too."""
    loading: float
    queries: int
    waiting: float
    """A steady pass while twenty replicas fit nowhere."""
    waiting_cpu: float
    afresh: float
    """Placing all of them, planned as one."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.planner", description=__doc__)
    parser.add_argument("--nodes", default="100,300,1000", help="sizes, rising")
    parser.add_argument("--store", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--profile", action="store_true", help="print where the time of steady passes goes")
    parser.add_argument("--no-afresh", action="store_true", help="leave out placing everything afresh")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="llmgw-bench-planner-") as home:
        os.environ["LLMGW_HOME"] = home
        os.environ.pop("LLMGW_STORE", None)
        if given.store == "postgresql":
            from tests.services.postgres import start

            os.environ["LLMGW_STORE"] = start()
        os.environ["DJANGO_SETTINGS_MODULE"] = "llmgw.settings"
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        rows = [measured(int(n), given.profile, afresh=not given.no_afresh) for n in given.nodes.split(",")]
    print(f"\n{CARDS} cards a node; {given.store}; milliseconds, the middle of {PASSES}\n")
    heads = (
        "nodes, replicas, first pass, steady pass, CPU of it, of it loading, queries, twenty wait, CPU of it, afresh"
    )
    print("| " + heads.replace(", ", " | ") + " |")
    print("|---" * len(heads.split(", ")) + "|")
    for r in rows:
        figures = (r.first, r.steady, r.steady_cpu, r.loading, r.queries, r.waiting, r.waiting_cpu, r.afresh)
        print(f"| {r.nodes:,} | {r.replicas:,} | {' | '.join(f'{f:.0f}' for f in figures)} |")


def measured(nodes: int, profiled: bool, *, afresh: bool) -> Row:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from fleet.core import starting
    from fleet.core.reconcile import plan
    from fleet.selectors.world import load_wanted, load_world

    store(nodes)

    def one() -> float:
        now, cpu = time.time(), time.process_time()
        world, wanted = load_world(now), load_wanted()
        world = replace(world, starts=starting.starts(world.shown, (w.definition for w in wanted)))
        loaded.append((time.time() - now) * 1000)
        assert not plan(world, wanted, now).steps, "the world is not steady"
        computed.append((time.process_time() - cpu) * 1000)
        return (time.time() - now) * 1000

    loaded: list[float] = []
    computed: list[float] = []
    first = one()
    loaded.clear()
    if profiled:
        _profile(one)
    computed.clear()
    steady = [heard(n, one) for n in range(PASSES)]
    steady_cpu = statistics.median(computed)
    loading = statistics.median(loaded[-PASSES:])
    with CaptureQueriesContext(connection) as queries:
        one()
    world, wanted = load_world(time.time()), load_wanted()
    fresh = placed_afresh(world, wanted) if afresh else float("nan")
    crowded()
    beats(0)
    settle()
    one()
    if profiled:
        _profile(one)
    computed.clear()
    waiting = [heard(n, one) for n in range(PASSES)]
    return Row(
        nodes,
        len(world.replicas),
        first,
        statistics.median(steady),
        steady_cpu,
        loading,
        len(queries),
        statistics.median(waiting),
        statistics.median(computed),
        fresh,
    )


def settle() -> None:
    """Carries out the pass that makes rows of what waits."""
    from fleet import apply
    from fleet.core.reconcile import plan
    from fleet.selectors.world import load_wanted, load_world
    from llmgw.cluster import leases

    now = time.time()
    world = load_world(now)
    held = leases.take(apply.LEASE, "bench", 60)
    apply.commit(plan(world, load_wanted(), now), version=world.version, held=held, now=now)


def placed_afresh(world: World, wanted: tuple[WantedModel, ...]) -> float:
    """From nothing to everything placed: as many passes as it takes, without the store."""
    from fleet.core.reconcile import plan
    from fleet.core.simulate import apply

    world = replace(world, replicas=())
    took = 0.0
    while True:
        began = time.perf_counter()
        found = plan(world, wanted, time.time())
        took += time.perf_counter() - began
        if not found.steps:
            return took * 1000
        world = apply(world, found, time.time())


def facts(number: int) -> dict[str, Any]:
    """Of a machine with eight cards behind a switch and two InfiniBand adapters."""
    import msgspec

    from agent.wire.facts import EngineFacts, GpuFacts, NodeFacts, PcieFacts, PortFacts

    gpus = tuple(
        GpuFacts(
            index=n,
            uuid=f"GPU-{number:06d}-{n}",
            name="NVIDIA H100 80GB HBM3",
            gpu_class="h100-80g",
            memory_bytes=80 * GIB,
            memory_free_bytes=79 * GIB,
            compute_capability="9.0",
            temperature_c=40 + number % 20,
            power_w=300.0 + number % 50,
            power_limit_w=700.0,
            utilization_percent=50.0,
            bus_id=f"0000:{n:02x}:00.0",
            numa_node=n // 4,
            adapters=(f"mlx5_{n // 4}",),
            pcie=PcieFacts(5, 16, 5, 16),
            ecc_uncorrected=0,
            nvlinks=(),
            switched=True,
            holders=(),
        )
        for n in range(CARDS)
    )
    ports = tuple(
        PortFacts(f"mlx5_{n}", 1, "infiniband", True, 400.0, subnet_manager=f"sm{number // 64}") for n in range(2)
    )
    found = NodeFacts(
        hostname=f"node-{number:04d}",
        address=f"10.{number // 250}.0.{number % 250}",
        os="Debian 12",
        arch="x86_64",
        boot_id=f"boot-{number}",
        cpu_count=128,
        cpu_model="EPYC",
        vector_extensions=("avx", "avx2", "avx512f"),
        memory_bytes=1024 * GIB,
        memory_free_bytes=900 * GIB,
        disk_bytes=8192 * GIB,
        ports_taken=(22, 9100),
        driver="570.86.15",
        agent_version="0.1.0",
        labels={"llmgw.io/rack": f"r{number // 8}", "llmgw.io/pdu": f"p{number // 16}"},
        gpus=gpus,
        rdma_ports=ports,
        engines=(EngineFacts("llamacpp", version="1"),),
    )
    return {k: v for k, v in msgspec.to_builtins(found).items() if v is not None}


def store(nodes: int) -> None:
    """A fleet that runs what is wanted: on each node four replicas on a card each, and one on four."""
    from catalog.models import Model
    from fleet import models
    from fleet.core.hearing import LEASE as LINK_LEASE
    from llmgw.cluster import leases
    from llmgw.cluster.models import Lease

    for table in (models.Replica, models.Node, Model):
        table.objects.all().delete()
    now = datetime.now(UTC)
    leases.take(f"{LINK_LEASE}:bench:1", "bench", 86_400)
    Lease.objects.filter(name=f"{LINK_LEASE}:bench:1").update(taken_at=datetime.fromtimestamp(time.time() - 3600, UTC))
    made = models.Node.objects.bulk_create(
        models.Node(
            node_id=f"node-{n:04d}",
            facts=facts(n),
            connected=True,
            last_seen=now,
            reported_at=now,
            memory_free_bytes=900 * GIB,
            disk_free_bytes=5000 * GIB,
        )
        for n in range(nodes)
    )
    sizes = [1, 1, 1, 1, 4]
    kinds = {1: max(nodes * 4 // 40, 1), 4: max(nodes // 40, 1)}
    names = {size: [f"m{size}-{k:03d}" for k in range(count)] for size, count in kinds.items()}
    wants = dict.fromkeys((n for found in names.values() for n in found), 0)
    seen = dict.fromkeys(kinds, 0)
    replicas, shards, claims = [], [], []
    for node in made:
        device = 0
        for at, size in enumerate(sizes):
            model = names[size][seen[size] % kinds[size]]
            seen[size] += 1
            wants[model] += 1
            replica = models.Replica(
                model=model,
                profile="gpu",
                state="ready",
                state_since=now,
                ready_at=now,
                spec={"profile": run(size), "source": {"url": f"hf:bench/{model}"}},
            )
            devices = list(range(device, device + size))
            device += size
            replicas.append(replica)
            shards.append((replica, node, 18100 + at, devices))
    models.Replica.objects.bulk_create(replicas, batch_size=500)
    rows = models.Shard.objects.bulk_create(
        (
            models.Shard(
                replica=r,
                node=n,
                port=port,
                devices=devices,
                cpu_cores=4,
                memory_bytes=16 * GIB,
                memory_measured_bytes=12 * GIB,
                devices_memory={str(d): 70 * GIB for d in devices},
                observed="ready",
                observed_at=now,
                since=now,
            )
            for r, n, port, devices in shards
        ),
        batch_size=500,
    )
    for row in rows:
        claims += [models.Claim(node=row.node, device=d, shard=row) for d in row.devices]
    models.Claim.objects.bulk_create(claims, batch_size=500)
    Model.objects.bulk_create(
        Model(name=name, definition=definition(name, 1 if name in names[1] else 4, count))
        for name, count in wants.items()
    )
    learned(names)


def learned(names: dict[int, list[str]]) -> None:
    """What runs of every model have shown."""
    from fleet import models

    models.Learned.objects.all().delete()
    models.Learned.objects.bulk_create(
        models.Learned(
            weights=f"hf:bench/{name}",
            engine="llamacpp",
            gpu_class="h100-80g",
            gpus=size,
            context_length=32768,
            parallel=1,
            kind=kind,
            n=9,
            mean=mean,
            most=mean,
            recent=[mean] * 5 if kind in ("fetch", "start") else [],
        )
        for size, found in names.items()
        for name in found
        for kind, mean in (("memory", 12 * GIB), ("gpu_memory", 70 * GIB), ("fetch", 60), ("start", 40))
    )


def run(gpus: int) -> dict[str, Any]:
    return {
        "name": "gpu",
        "engine": "llamacpp",
        "gpus": gpus,
        "gpu_class": "h100-80g",
        "cpu_cores": 4,
        "memory_bytes": 16 * GIB,
        "context_length": 32768,
    }


def definition(name: str, gpus: int, count: int) -> dict[str, Any]:
    return {
        "name": name,
        "source": f"hf:bench/{name}",
        "profiles": [{"run": run(gpus)}],
        "scaling": {"min": count, "max": count},
    }


def crowded() -> None:
    """Twenty replicas that fit nowhere, of four models."""
    from catalog.models import Model

    Model.objects.bulk_create(
        Model(name=f"late-{n}", definition=definition(f"late-{n}", size, 5)) for n, size in enumerate((1, 2, 4, 8))
    )


def heard(turn: int, one: Callable[[], float]) -> float:
    """A pass after what comes in between two."""
    beats(turn)
    return one()


def beats(turn: int) -> None:
    """A heartbeat of each node, and some reports."""
    from django.db.models import F

    from fleet import models

    now = datetime.now(UTC)
    models.Node.objects.update(last_seen=now, memory_free_bytes=F("memory_free_bytes") - 4096)
    for node in models.Node.objects.all()[turn % REPORTS :: REPORTS]:
        node.facts["gpus"][0]["temperature_c"] += 1
        node.reported_at = now
        node.save(update_fields=["facts", "reported_at"])


def _profile(one: Callable[[], float]) -> None:
    import cProfile
    import pstats

    profile = cProfile.Profile()
    for n in range(3):
        heard(n, lambda: profile.runcall(one))
    pstats.Stats(profile).sort_stats("cumulative").print_stats(45)


if __name__ == "__main__":
    main()
