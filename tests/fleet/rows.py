"""A fleet in rows, made through the same doors as the link's: no process, no socket."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from django.utils import timezone

from agent.wire.messages import Report
from agent.wire.shard import ShardObserved, ShardSpec, ShardState
from catalog.models import Model
from fleet import models, passes
from fleet.actions import observe
from fleet.bootstrap import store_id
from fleet.core.hearing import LEASE as LINK_LEASE
from fleet.link import orders
from llmgw.cluster import leases
from llmgw.cluster.models import Lease
from tests.fleet.agents import FACTS

LINK = f"{LINK_LEASE}:test:1"


def link_is_up() -> None:
    leases.take(LINK, "test", 60)


def grace_is_over() -> None:
    """The link has been up for longer than nodes that nobody knows are waited for."""
    Lease.objects.filter(name=LINK).update(taken_at=timezone.now() - timedelta(hours=1))


def joined(node_id: str = "n1", facts: Any = FACTS, shards: tuple[ShardObserved, ...] = (), **said: Any) -> models.Node:
    """A node that is connected and has reported."""
    models.Node.objects.get_or_create(node_id=node_id)
    models.Node.objects.filter(node_id=node_id).update(connected=True, link=LINK, last_seen=timezone.now())
    observe.report(node_id=node_id, message=Report(facts, shards, **said), store_id=store_id())
    return models.Node.objects.get(node_id=node_id)


def tiny(minimum: int = 1, name: str = "tiny", source: str = "starter:tiny", **run: Any) -> None:
    profile = {"name": "cpu", "engine": "llamacpp", "cpu_cores": 1, **run}
    definition = {
        "name": name,
        "source": source,
        "profiles": [{"run": profile}],
        "scaling": {"min": minimum, "max": minimum},
    }
    Model.objects.update_or_create(name=name, defaults={"definition": definition})


def told(node_id: str = "n1") -> tuple[ShardSpec, ...]:
    """What the node is to run now."""
    return orders.desired_states([node_id], store_id())[node_id].shards


def seen(spec: ShardSpec, state: ShardState, **fields: Any) -> ShardObserved:
    return ShardObserved(
        shard_id=spec.shard_id,
        state=state,
        **{
            "incarnation": spec.incarnation,
            "fingerprint": spec.fingerprint,
            "pid": 4242,
            "address": "10.0.0.7",
            "port": spec.port,
            "replica_id": spec.replica_id,
            "model": spec.model,
            "since": time.time(),
            **fields,
        },
    )


def beat(*shards: ShardObserved, node_id: str = "n1") -> None:
    generation = models.Node.objects.get(node_id=node_id).generation
    observe.heartbeat(node_id=node_id, shards=shards, taken_generation=generation)


def serving(node_id: str = "n1") -> models.Replica:
    """A model's one replica, ready on the node."""
    tiny()
    passes.run()
    beat(seen(told(node_id)[0], ShardState.READY), node_id=node_id)
    return models.Replica.objects.get()


def back_in_time(replica: models.Replica, seconds: float) -> None:
    """As if it had come to its state that long ago."""
    at = timezone.now() - timezone.timedelta(seconds=seconds)
    models.Replica.objects.filter(pk=replica.pk).update(state_since=at)
