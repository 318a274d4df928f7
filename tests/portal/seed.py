"""A cluster as rows: people, keys, nodes, models, replicas in every state, requests over a month.

Run as a script it fills the store of `LLMGW_HOME`; tests call `fill()` in their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

PROJECT = "00000000000000a1"
ADMIN, MEMBER, PASSWORD = "ada@example.com", "İlkay@example.com", "correct horse battery"
GIB = 2**30


@dataclass(frozen=True)
class Seeded:
    admin: Any
    member: Any
    project: Any
    key: Any


CARDS: list[dict[str, Any]] = [
    {
        "index": 0, "name": "NVIDIA H100 80GB HBM3", "gpu_class": "h100-80g", "memory_bytes": 80 * GIB,
        "memory_free_bytes": 9 * GIB, "temperature_c": 61, "power_w": 412.0, "power_limit_w": 700.0,
        "utilization_percent": 92.0, "numa_node": 0, "nvlinks": [{"peer": 1, "links": 4}], "ecc_uncorrected": 2,
        "pcie": {"generation": 5, "width": 8, "card_generation": 5, "card_width": 16},
    },
    {
        "index": 1102, "name": "NVIDIA H100 80GB HBM3", "gpu_class": "h100-80g-mig-1g.10gb", "mig_profile": "1g.10gb",
        "memory_bytes": 10 * GIB, "problem": "the driver does not tell this MIG instance's id",
    },
]  # fmt: skip
PORTS: list[dict[str, Any]] = [
    {"adapter": "mlx5_0", "port": 1, "kind": "infiniband", "active": True, "rate_gbps": 200.0, "numa_node": 0,
     "subnet_manager": "0xb8599f03000aaaa0", "errors": 0},
    {"adapter": "mlx5_2", "port": 1, "kind": "roce", "active": False, "rate_gbps": 100.0, "netdev": "ens1f0np0"},
]  # fmt: skip


def fill(replicas: int = 7, nodes: int = 3, requests: int = 60) -> Seeded:
    from catalog.models import Model, ModelName
    from fleet.models import Node, Replica, ReplicaEvent, Shard
    from gateway.control.ingesting import keep
    from gateway.models import Usage
    from llmgw.cluster.actions import notices, settings
    from llmgw.cluster.core.notices import Said, Standing
    from tenancy.actions import keys, limits, tree
    from tenancy.models import Membership, Person

    now = datetime.now(UTC)
    admin = Person.objects.create_superuser(ADMIN, PASSWORD, name="Ada")
    member = Person.objects.create_user(MEMBER, PASSWORD, name="İlkay Işık")
    organisation = tree.create_organisation(name="İstanbul Lab", actor="seed")
    team = tree.create_team(organisation=organisation, name="research", actor="seed")
    project = tree.create_project(team=team, name="assistants", actor="seed")
    project.public_id = PROJECT
    project.save()
    limits.change(
        level=project, limits={"concurrent": 8, "budget": "250.00"}, terms={"reuse": {"ttl_s": 3600}}, actor="seed"
    )
    Membership.objects.create(person=member, project=project, role=Membership.Role.MEMBER)
    Membership.objects.create(person=admin, organisation=organisation, role=Membership.Role.OWNER)
    key = keys.create(project=project, name="notebook", person=admin, actor=ADMIN, days=30).key
    keys.create(project=project, name="evaluation run", person=member, actor=ADMIN, days=30)
    keys.revoke(key=keys.create(project=project, name="old laptop", person=admin, actor=ADMIN).key, actor=ADMIN)
    settings.save(document={"gateway": {"retries": 3}}, base=0, actor=ADMIN, note="Engines restart quickly here.")

    machines = []
    for n in range(nodes):
        facts: dict[str, Any] = {
            "hostname": f"gpu-{n + 1}",
            "address": f"10.0.0.{n + 11}",
            "os": "Debian 12",
            "arch": "x86_64",
            "cpu_count": 64,
            "cpu_model": "EPYC 9354",
            "memory_bytes": 512 * GIB,
            "vector_extensions": ["avx2", "avx512f"],
            "gpus": CARDS if n else [],
            "rdma_ports": PORTS if n else [],
            "engines": [{"name": "llamacpp", "version": "b11549"}],
            "labels": {"room": "Çankaya"},
        }
        if n == 2:
            facts = {}
        machines.append(
            Node.objects.create(
                node_id=f"node-{n + 1}",
                facts=facts,
                connected=n != 2,
                last_seen=now - timedelta(seconds=2 if n < 2 else 900),
                reported_at=now,
                memory_free_bytes=300 * GIB if facts else None,
                agent_version="0.1.0",
                load_1m=3.25 if facts else None,
                cordoned=n == 1,
                disk_free_bytes=900 * GIB if facts else None,
            )
        )
    definition = {
        "source": "starter:tiny",
        "profiles": [{"run": {"name": "cpu", "engine": "llamacpp", "parallel": 4}}],
        "scaling": {"min": 2, "max": 2},
        "context_length": 4096,
    }
    for name in ("tiny", "qwen2.5-72b", "idle-model"):
        model = Model.objects.create(name=name, definition={"name": name, **definition}, stopped=name == "idle-model")
        ModelName.objects.create(name=name, model=model)
    spec = {
        "profile": {"name": "cpu", "engine": "llamacpp", "parallel": 4},
        "source": {"url": "starter:tiny"},
    }
    states = ["ready", "ready", "loading", "starting", "backoff", "parked", "pending"]
    reasons = {
        "loading": "the weights are being read",
        "backoff": "the engine ended with status 1: failed to load model; the third try is in 8 s",
        "parked": "five failed starts in a row: out of memory while allocating the KV cache",
        "pending": "no node can take it now: node-1 has 12 GiB free of the 80 GiB that it needs; node-2 is cordoned",
    }
    for n in range(replicas):
        state = states[n % len(states)]
        replica = Replica.objects.create(
            public_id=f"r-{n:010x}",
            model="tiny" if n % len(states) < 3 else "qwen2.5-72b",
            profile="cpu",
            state=state,
            reason=reasons.get(state, ""),
            state_since=now - timedelta(minutes=3 * n + 1),
            failures=3 if state == "backoff" else 0,
            next_try_at=now + timedelta(seconds=8) if state == "backoff" else None,
            spec=spec,
        )
        ReplicaEvent.objects.create(replica=replica.public_id, model=replica.model, node="node-1", state="starting")
        ReplicaEvent.objects.create(
            replica=replica.public_id, model=replica.model, node="node-1", state=state, reason=replica.reason
        )
        if state != "pending":
            Shard.objects.create(
                replica=replica,
                node=machines[n % 2],
                port=18100 + n,
                cpu_cores=4,
                memory_bytes=2 * GIB,
                pid=4000 + n,
                observed="failed" if state in ("backoff", "parked") else state,
                reason=replica.reason,
                progress=0.62 if state == "loading" else None,
                memory_measured_bytes=GIB if state == "ready" else None,
                last_words=["llama_model_load: error loading model", "<b>out of memory</b>"]
                if state == "parked"
                else [],
            )
    rows = []
    outcomes = ["ok"] * 8 + ["client_left", "engine_failed", "refused"]
    for n in range(requests):
        outcome = outcomes[n % len(outcomes)]
        used = Usage(
            request_id=f"req_{n:026d}",
            at=now - timedelta(hours=11 * n, minutes=n),
            endpoint="chat",
            model="tiny",
            asked="tiny",
            stream=True,
            project=project.public_id,
            person=admin.public_id,
            key=key.public_id,
            edge="edge-1",
            outcome=outcome,
            status=200 if outcome != "refused" else 429,
            code="" if outcome != "refused" else "rate_limited",
            replica="r-0000000000" if outcome != "refused" else "",
            node="node-1" if outcome != "refused" else "",
            route="fewest requests of two",
            prompt_tokens=120 + 37 * (n % 9) if outcome != "refused" else None,
            completion_tokens=300 + 91 * (n % 7) if outcome != "refused" else None,
            ttft_ms=84.0 + n,
            duration_ms=1900.0 + 40 * n,
            cost=None if outcome == "refused" else 2_500_000 * (n % 9 + 1),
        )
        rows.append(used)
    keep(rows)
    lost = Said("the node node-3 has not been heard for 20 s; 2 replicas were there", "llmgw node show node-3")
    parked = Said("the model qwen2.5-72b is parked on node-2, it is not served: out of memory", "llmgw replica list")
    spent = Said("the team İstanbul Lab/research has spent its budget of 250.00: priced models are refused")
    notices.stand({"model_parked": Standing({"qwen2.5-72b": parked}), "node_lost": Standing({"node-3": lost})})
    notices.stand({"budget_spent": Standing({"team İstanbul Lab/research": spent})})
    notices.stand({"budget_spent": Standing()})
    return Seeded(admin, member, project, key)


if __name__ == "__main__":
    import json

    import django

    django.setup()
    found = fill()
    print(json.dumps({"person": found.admin.public_id, "project": found.project.public_id}))
