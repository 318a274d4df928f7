"""A fleet in the store that runs what is wanted, and what its nodes tell meanwhile."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import cycle
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleet.models import Node, Replica, Shard

GIB = 1024**3
CARDS = 8
REPORTS = 15
"""A report every 30 s where a pass comes every 2 s: of so many nodes one has told its facts anew."""
_SIZES = (1, 1, 1, 1, 4)
"""Cards of the replicas on each node."""


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

    for table in (models.Replica, models.Node, Model):
        table.objects.all().delete()
    _link_is_up()
    now = datetime.now(UTC)
    names = {
        1: [f"m1-{k:03d}" for k in range(max(nodes * 4 // 40, 1))],
        4: [f"m4-{k:03d}" for k in range(max(nodes // 40, 1))],
    }
    _replicas(_nodes(nodes, now), names, now)
    counts = Counter(models.Replica.objects.values_list("model", flat=True))
    Model.objects.bulk_create(
        Model(name=name, definition=definition(name, size, counts[name])) for size in names for name in names[size]
    )
    learned(names)


def _link_is_up() -> None:
    """And has been for an hour: every node has had the time to report."""
    from fleet.core.hearing import LEASE
    from llmgw.cluster import leases
    from llmgw.cluster.models import Lease

    name = f"{LEASE}:bench:1"
    leases.take(name, "bench", 86_400)
    Lease.objects.filter(name=name).update(taken_at=datetime.fromtimestamp(time.time() - 3600, UTC))


def _nodes(count: int, now: datetime) -> list[Node]:
    from fleet.models import Node

    return Node.objects.bulk_create(
        Node(
            node_id=f"node-{n:04d}",
            facts=facts(n),
            connected=True,
            last_seen=now,
            reported_at=now,
            memory_free_bytes=900 * GIB,
            disk_free_bytes=5000 * GIB,
        )
        for n in range(count)
    )


def _replicas(nodes: Sequence[Node], names: Mapping[int, Sequence[str]], now: datetime) -> None:
    """On every node, of one model after the other."""
    from fleet.models import Claim, Replica, Shard

    turns = {size: cycle(found) for size, found in names.items()}
    replicas, shards = [], []
    for node in nodes:
        device = 0
        for at, size in enumerate(_SIZES):
            model = next(turns[size])
            spec = {"profile": run(size), "source": {"url": f"hf:bench/{model}"}}
            replica = Replica(model=model, profile="gpu", state="ready", state_since=now, ready_at=now, spec=spec)
            replicas.append(replica)
            shards.append(_shard(replica, node, 18100 + at, range(device, device + size), now))
            device += size
    Replica.objects.bulk_create(replicas, batch_size=500)
    rows = Shard.objects.bulk_create(shards, batch_size=500)
    claims = [Claim(node=row.node, device=d, shard=row) for row in rows for d in row.devices]
    Claim.objects.bulk_create(claims, batch_size=500)


def _shard(replica: Replica, node: Node, port: int, devices: Iterable[int], now: datetime) -> Shard:
    from fleet.models import Shard

    return Shard(
        replica=replica,
        node=node,
        port=port,
        devices=list(devices),
        cpu_cores=4,
        memory_bytes=16 * GIB,
        memory_measured_bytes=12 * GIB,
        devices_memory={str(d): 70 * GIB for d in devices},
        observed="ready",
        observed_at=now,
        since=now,
    )


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
