"""What connected nodes are to run now, for many nodes in a fixed number of queries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from agent.wire.messages import Desired
from catalog import selectors as catalog
from fleet import apply, models
from fleet.core.desired import Stamp, desired
from fleet.core.replica import ORDERED
from fleet.core.world import ReplicaView
from fleet.selectors import kept
from fleet.selectors.world import engine_key
from llmgw.cluster import leases


@dataclass(frozen=True, slots=True)
class Position:
    """Where a node's desired state stands."""

    term: int
    generation: int
    settled: bool


def positions(link: str) -> dict[str, Position]:
    """Of every node that this link holds. A node that is absent was removed."""
    term = leases.term(apply.LEASE)
    rows = models.Node.objects.filter(link=link).values_list("node_id", "generation", "settled")
    return {node: Position(term, generation, settled) for node, generation, settled in rows}


def desired_states(nodes: Collection[str], store_id: str) -> dict[str, Desired]:
    """The whole wanted state of each of `nodes`."""
    names = dict(models.Node.objects.filter(node_id__in=nodes).values_list("pk", "node_id"))
    stood = {n.node_id: n for n in models.Node.objects.filter(pk__in=names)}
    ordered = models.Replica.objects.filter(state__in=ORDERED, shards__node__in=names).distinct()
    everywhere = dict(models.Node.objects.values_list("pk", "node_id"))
    ranks = kept.shards(everywhere, models.Shard.objects.filter(replica__in=ordered.values("pk")))
    placed: dict[str, list[ReplicaView]] = defaultdict(list)
    for view in kept.replicas(ranks, ordered):
        for node in {s.node for s in view.shards}:
            placed[node].append(view)
    taken_over = _taken_over(names)
    unwanted = catalog.unwanted()
    term = leases.term(apply.LEASE)
    return {
        name: desired(
            name,
            placed[name],
            Stamp(store_id, term, node.generation),
            settled=node.settled,
            key=engine_key,
            taken_over=taken_over[name],
            unwanted=unwanted,
        )
        for name, node in stood.items()
    }


def _taken_over(names: dict[int, str]) -> dict[str, set[str]]:
    """By node: the shards that another store started, and that this one adopted or an administrator gave up."""
    found: dict[str, set[str]] = defaultdict(set)
    adopted = models.Shard.objects.filter(node__in=names, replica__adopted=True)
    for node, replica, rank in adopted.values_list("node_id", "replica__public_id", "rank"):
        found[names[node]].add(f"{replica}.{rank}")
    given_up = models.Stray.objects.filter(node__in=names, foreign=True, dismissed=True)
    for node, shard_id in given_up.values_list("node_id", "shard_id"):
        found[names[node]].add(shard_id)
    return found
