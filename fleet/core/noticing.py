"""What of the fleet a person should be told: nodes that are lost, models that are parked. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fleet.core.replica import State
from fleet.core.world import ReplicaView, WantedModel, World
from llmgw.cluster.core import notices
from llmgw.cluster.core.notices import Said, Standing


def standings(world: World, wanted: Iterable[WantedModel]) -> Mapping[str, Standing]:
    """Empty while not every node that is known had its time to report: silence means nothing then."""
    if not world.synced:
        return {}
    return {notices.NODE_LOST: _nodes(world), notices.MODEL_PARKED: _models(world, wanted)}


def _nodes(world: World) -> Standing:
    """One that was drained is expected to go, and nobody is told."""
    on: dict[str, int] = {}
    for replica in world.replicas:
        for name in {shard.node for shard in replica.shards}:
            on[name] = on.get(name, 0) + 1
    so: dict[str, Said] = {}
    well: dict[str, Said] = {}
    undecided: list[str] = []
    for node in world.nodes:
        show = f"llmgw node show {node.id}"
        if node.lost and not node.draining:
            count = on.get(node.id, 0)
            silent = f"the node {node.id} has not been heard for {world.settings.node_lost_s:.0f} s"
            there = f"{count} replicas were there" if count > 1 else "one replica was there"
            message = "; ".join([silent, there]) if count else silent
            so[node.id] = Said(message, show, {"replicas": count})
        elif node.connected and not node.lost:
            well[node.id] = Said(f"the node {node.id} is heard again", show)
        else:
            undecided.append(node.id)
    return Standing(so, well, undecided)


def _models(world: World, wanted: Iterable[WantedModel]) -> Standing:
    """Parked: a replica of it failed every start in a row and is not tried again. Over when one serves and none is
    parked; a model that nobody wants any more is of no interest."""
    by_model: dict[str, list[ReplicaView]] = {}
    for replica in world.replicas:
        by_model.setdefault(replica.model, []).append(replica)
    so: dict[str, Said] = {}
    well: dict[str, Said] = {}
    undecided: list[str] = []
    for name in sorted(w.name for w in wanted if not w.stopped):
        replicas = by_model.get(name, [])
        ready = sum(r.state is State.READY for r in replicas)
        parked = [r for r in replicas if r.state is State.PARKED]
        if parked:
            so[name] = _parked(name, parked, ready)
        elif ready:
            well[name] = Said(f"the model {name} serves again", f"llmgw model show {name}", {"ready": ready})
        else:
            undecided.append(name)
    return Standing(so, well, undecided)


def _parked(name: str, parked: list[ReplicaView], ready: int) -> Said:
    first = parked[0]
    node = first.shards[0].node if first.shards else ""
    serving = (
        f"{ready} of its replicas serve" if ready > 1 else "one of its replicas serves" if ready else "it is not served"
    )
    why = first.reason.rstrip(".")
    message = (
        f"the model {name} is parked on {node}, {serving}: {why}"
        if node
        else (f"the model {name} is parked, {serving}: {why}")
    )
    detail = {
        "replicas": [r.id for r in parked],
        "node": node,
        "reason_code": first.reason_code,
        "ready": ready,
    }
    return Said(message, f"llmgw replica retry {first.id}", detail)
