"""A pretended hall of machines as rows: racks of an NVLink domain, InfiniBand nodes, RoCE nodes, cut cards, faults.

`hall()` adds it to whatever is in the store; with a Redis client what the cards do now is told there, too.
"""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from agent.wire.facts import GpuFigures

GIB = 2**30
CLUSTER = "7c9d2f1e-52aa-4d1b-9d3c-0f6a1b2c3d4e"
MODELS = (
    # name, cards a rank, ranks, where it may stand
    ("deepseek-v3.1", 4, 4, "nvl"),
    ("qwen3-235b", 4, 2, "nvl"),
    ("llama-405b", 8, 2, "ib"),
    ("llama-3.3-70b", 4, 1, "ib"),
    ("gpt-oss-120b", 2, 1, "ib"),
    ("mistral-24b", 1, 1, "roce"),
    ("whisper-large", 1, 1, "roce"),
    ("bge-m3", 1, 1, "roce"),
    ("flux-dev", 1, 1, "mig"),
)
SPEC = {
    "profile": {"name": "cards", "engine": "vllm", "parallel": 64, "gpus": 1},
    "source": {"url": "hf://example/model"},
}


def gpu(index: int, **said: Any) -> dict[str, Any]:
    return {
        "index": index, "uuid": f"GPU-{index}", "name": "NVIDIA H100 80GB HBM3", "gpu_class": "h100-80g",
        "memory_bytes": 80 * GIB, "memory_free_bytes": 79 * GIB, "power_limit_w": 700.0, "power_w": 71.0,
        "temperature_c": 34, "numa_node": index // 4, "switched": True, "nvlinks": [], "adapters": [f"mlx5_{index}"],
        "pcie": {"generation": 5, "width": 16, "card_generation": 5, "card_width": 16}, **said,
    }  # fmt: skip


def port(adapter: int, **said: Any) -> dict[str, Any]:
    return {
        "adapter": f"mlx5_{adapter}", "port": 1, "kind": "infiniband", "active": True, "rate_gbps": 400.0,
        "numa_node": adapter // 4, "subnet_manager": "0x506b4b0300aa1100", "errors": 0, **said,
    }  # fmt: skip


def tray(n: int) -> dict[str, Any]:
    """A compute tray of an NVL72: four cards in one domain."""
    domain = {"state": "Completed", "cluster": CLUSTER, "clique": 1}
    cards = [
        gpu(i, name="NVIDIA GB200", gpu_class="gb200-184g", memory_bytes=184 * GIB, memory_free_bytes=182 * GIB,
            power_limit_w=1200.0, power_w=180.0, domain=dict(domain), numa_node=i // 2)
        for i in range(4)
    ]  # fmt: skip
    if n == 7:
        cards[2]["domain"]["state"] = "In progress"
    if n == 12:
        cards[3]["problem"] = "Xid 79: the card has fallen off the bus"
    return {"gpus": cards, "imex": n != 15, "rdma_ports": [port(i) for i in range(4)]}


def server(n: int) -> dict[str, Any]:
    """Eight cards behind NVSwitch, eight InfiniBand ports; the last two hang on another subnet manager."""
    manager = "0x506b4b0300aa1100" if n < 8 else "0x506b4b0300bb2200"
    ports = [port(i, subnet_manager=manager) for i in range(8)]
    if n == 3:
        ports[5] |= {"active": False}
    return {
        "gpus": [gpu(i) for i in range(8)],
        "rdma_ports": ports,
        "fabrics": [{"name": "ib-a", "adapters": [f"mlx5_{i}" for i in range(4)]}],
    }


def small(n: int) -> dict[str, Any]:
    cards = [
        gpu(i, name="NVIDIA L40S", gpu_class="l40s-45g", memory_bytes=45 * GIB, memory_free_bytes=44 * GIB,
            power_limit_w=350.0, power_w=32.0, switched=False, adapters=["mlx5_0" if i < 4 else "mlx5_1"])
        for i in range(8)
    ]  # fmt: skip
    ports = [port(i, kind="roce", rate_gbps=100.0, gid_index=3, netdev=f"ens{i}f0", subnet_manager=None) for i in (0, 1)]  # fmt: skip # noqa: E501
    return {"gpus": cards, "rdma_ports": ports, "fabrics": [{"name": "roce-b", "adapters": ["mlx5_0", "mlx5_1"]}]}


def cut(n: int) -> dict[str, Any]:
    """Half of the cards as MIG instances."""
    cards = [gpu(i) for i in range(4)]
    for card in range(4, 8):
        for instance, profile in ((1, "3g.40gb"), (7, "1g.10gb"), (8, "1g.10gb")):
            size = int(profile.split(".")[1][:2]) * GIB
            index = 1000 + 100 * card + instance
            cards.append(
                gpu(index, mig_profile=profile, gpu_class=f"h100-80g-mig-{profile}", memory_bytes=size,
                    memory_free_bytes=size, numa_node=card // 4, switched=None, nvlinks=None)
            )  # fmt: skip
    return {"gpus": cards, "rdma_ports": []}


KINDS = (("nvl", 18, tray, "r12"), ("ib", 10, server, "r14"), ("roce", 4, small, "r21"), ("mig", 2, cut, "r21"))


def hall(client: Any = None, more: int = 0) -> list[Any]:
    """Thirty-four nodes with 208 cards; `more` of the InfiniBand kind besides. The nodes."""
    from fleet.models import Claim, Node, Replica, ReplicaEvent, Shard

    now, chance = datetime.now(UTC), random.Random(7)
    made: dict[str, list[Any]] = {}
    for kind, count, facts, rack in KINDS:
        extra = more if kind == "ib" else 0
        for n in range(count + extra):
            name = f"{kind}-{n + 1:02d}"
            where = f"{rack}-{n // 9 + 1:02d}" if kind != "nvl" else "r12-07"
            labels = {"llmgw.io/rack": where, "llmgw.io/row": rack, "llmgw.io/site": "sto1", "llmgw.io/pdu": f"pdu-{rack}"}  # fmt: skip # noqa: E501
            said = {
                "hostname": name, "address": f"10.1.{len(made)}.{n + 1}", "os": "Ubuntu 24.04", "arch": "x86_64",
                "cpu_count": 144, "cpu_model": "Xeon 8580", "memory_bytes": 2048 * GIB, "driver": "580.65.06",
                "labels": labels, "engines": [{"name": "vllm", "version": "0.11.0"}], **facts(n),
            }  # fmt: skip
            away = name == "ib-09"
            made.setdefault(kind, []).append(
                Node(
                    node_id=name, facts=said, connected=not away, cordoned=name == "roce-04", reported_at=now,
                    last_seen=now - timedelta(minutes=9 if away else 0), memory_free_bytes=1800 * GIB,
                    agent_version="0.1.0", load_1m=4.0,
                    foreign={"5": 31 * GIB} if name == "roce-02" else {},
                )
            )  # fmt: skip
    Node.objects.bulk_create([n for found in made.values() for n in found])
    free = {(kind, i): sorted(g["index"] for g in n.facts["gpus"] if not g.get("problem")) for kind, found in made.items() for i, n in enumerate(found)}  # fmt: skip # noqa: E501
    free["roce", 1].remove(5)
    replicas, shards, claims, events = [], [], [], []
    busy: dict[tuple[str, int], tuple[float, float]] = {}
    serial = 0
    for name, each, ranks, kind in MODELS:
        for copy in range(2 if ranks > 1 else 5):
            rooms = [i for i in range(len(made[kind])) if len(free[kind, i]) >= each and made[kind][i].connected]
            if len(rooms) < ranks:
                break
            serial += 1
            state = "loading" if copy == 1 and ranks > 1 else "ready"
            fabric = {"nvl": f"nvlink {CLUSTER}/1", "ib": "ib-a (infiniband 0x506b4b0300aa1100)"}.get(kind, "")
            replica = Replica(
                public_id=f"r-{0xFA00000000 + serial:010x}", model=name, profile="cards", state=state, spec=SPEC,
                state_since=now - timedelta(minutes=serial), ready_at=now - timedelta(minutes=serial),
                fabric=fabric if ranks > 1 else "", placed_at=now - timedelta(minutes=serial + 4),
            )  # fmt: skip
            replicas.append(replica)
            for step in ("starting", "loading", "ready")[: 2 if state == "loading" else 3]:
                events.append(
                    ReplicaEvent(replica=replica.public_id, model=name, node=made[kind][rooms[0]].node_id, state=step)
                )
            load = chance.choice((0.0, 35.0, 62.0, 78.0, 93.0)) if state == "ready" else 0.0
            for rank, i in enumerate(rooms[:ranks]):
                mine, free[kind, i] = free[kind, i][:each], free[kind, i][each:]
                node = made[kind][i]
                held = {str(d): int(0.86 * next(g["memory_bytes"] for g in node.facts["gpus"] if g["index"] == d)) for d in mine}  # fmt: skip # noqa: E501
                shard = Shard(
                    replica=replica, node=node, rank=rank, port=18000 + serial * 8 + rank, devices=mine, cpu_cores=8,
                    memory_bytes=64 * GIB, memory_measured_bytes=41 * GIB, observed=state, pid=5000 + serial,
                    devices_memory=held, progress=0.4 + 0.1 * rank if state == "loading" else None,
                    link={"name": fabric, "kind": "nvlink" if kind == "nvl" else "infiniband", "adapters": ["mlx5_0:1"]} if ranks > 1 else {},  # noqa: E501
                    took={"fetch_s": 41.0, "start_s": 88.5, "load_s": 63.2} if state == "ready" else {},
                )  # fmt: skip
                shards.append(shard)
                for d in mine:
                    claims.append(Claim(node=node, device=d, shard=shard))
                    busy[node.node_id, d] = (min(max(load + chance.uniform(-9, 6), 0.0), 100.0), 0.86)
    Replica.objects.bulk_create(replicas)
    Shard.objects.bulk_create(shards)
    Claim.objects.bulk_create(claims)
    ReplicaEvent.objects.bulk_create(events)
    nodes = [n for found in made.values() for n in found]
    if client is not None:
        tell(client, nodes, busy)
    return nodes


def tell(
    client: Any, nodes: list[Any], busy: dict[tuple[str, int], tuple[float, float]], ahead_s: float = 3600
) -> None:
    """What their cards do, as the link would; `ahead_s` so that it does not grow old under somebody's eyes."""
    from llmgw import node_figures

    for node in nodes:
        if not node.connected:
            continue
        figures = []
        for card in node.facts["gpus"]:
            load, share = busy.get((node.node_id, card["index"]), (0.0, 0.01))
            held = 31 * GIB if node.foreign.get(str(card["index"])) else int(share * card["memory_bytes"])
            cut, dead, limit = "mig_profile" in card, card.get("problem"), card["power_limit_w"]
            told = node.node_id.startswith(("nvl", "ib"))
            figures.append(
                GpuFigures(card["index"])
                if dead
                else GpuFigures(
                    card["index"], card["memory_bytes"] - held, int(34 + load / 2.2),
                    None if cut else limit * (0.12 + 0.8 * load / 100),
                    None if cut else load, load if told and not cut else None,
                )
            )  # fmt: skip
        value = node_figures.Told(at=time.time() + ahead_s, gpus=tuple(figures))
        client.hset(node_figures.KEY, node.node_id, node_figures.encode(value))


if __name__ == "__main__":
    import django

    django.setup()
    import redis
    from django.conf import settings

    print(len(hall(redis.Redis.from_url(settings.MACHINE.redis_url))), "nodes")
