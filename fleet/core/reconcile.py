"""From what is wanted and what is observed to a plan. Pure: the same input gives the same plan, and a plan that
was carried out leaves an empty one.

A pass looks at each replica by itself (`tending`), adopts engines that run and that nobody knows, then evens out each
model: what is stale goes (`staleness`, `rolling`), what is missing gets a place (`filling`). Before the world is
synced nothing is ended and nothing new is started: what is wanted may be running on a node that has not spoken yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from agent.wire.reason import Reason
from fleet.core import adoption, parking, rolling, swap
from fleet.core.draft import LEAVING, Draft
from fleet.core.filling import Filling
from fleet.core.plan import Adopt, Flag, Plan, Settle
from fleet.core.replica import State
from fleet.core.tending import tend
from fleet.core.world import Demand, ReplicaView, WantedModel, World

_UNDER_WAY = frozenset({State.STARTING, State.LOADING, State.READY})


def plan(world: World, wanted: Iterable[WantedModel], now: float) -> Plan:
    """The steps that bring the fleet nearer to what is wanted."""
    draft = Draft(world, tuple(sorted(wanted, key=lambda w: w.name)), now)
    filling = Filling(draft)
    replicas: dict[str, list[ReplicaView]] = {}
    for replica in world.replicas:
        if tend(draft, replica):
            replicas.setdefault(replica.model, []).append(replica)
    adopted = _adopt(draft, replicas)
    for name in sorted({*draft.models, *replicas}, key=lambda name: _place_in_line(draft, name)):
        wanted_model = draft.models.get(name)
        if wanted_model is None or draft.counts[name].replicas == 0:
            _take_down(draft, name, replicas.get(name, []))
        else:
            _even_out(draft, filling, wanted_model, replicas.get(name, []), adopted.get(name, 0))
    _settle(draft)
    return draft.plan()


def _adopt(draft: Draft, replicas: Mapping[str, list[ReplicaView]]) -> dict[str, int]:
    """Engines that run just as they are wanted and that no row knows; how many a model. Those of which a rank was
    not reported yet are noted, and waited for."""
    counts: Counter[str] = Counter()
    if not draft.world.strays:
        return counts

    def missing(model: str) -> int:
        fresh = draft.staleness.fresh(draft.models[model], replicas.get(model, []))
        return draft.counts[model].replicas - sum(r.state in _UNDER_WAY for r in fresh)

    found = adoption.look(draft.world, draft.models, missing, lambda: draft.rooms.fabrics, draft.now)
    draft.awaited = found.awaited
    for step in found.steps:
        draft.steps.append(step)
        counts[step.model] += 1
        for shard in adoption.shards(step):
            draft.rooms[shard.node].take(step.model, shard)
        if step.meeting_port is not None:
            draft.rooms[step.leader.node].ports.add(step.meeting_port)
    return counts


def _place_in_line(draft: Draft, name: str) -> tuple[bool, float, str]:
    """What is kept loaded goes first; then who has waited longest."""
    count = draft.counts.get(name)
    if count is None or not count.on_demand:
        return False, 0.0, name
    return True, swap.place(draft.world.demand.get(name, Demand())), name


def _take_down(draft: Draft, name: str, replicas: Iterable[ReplicaView]) -> None:
    """Nothing of the model is to run."""
    removed = Reason("model_removed", f"the model {name} was removed")
    for replica in replicas:
        draft.end(replica, removed if name not in draft.models else draft.counts[name].reason)


def _even_out(draft: Draft, filling: Filling, wanted: WantedModel, replicas: list[ReplicaView], adopted: int) -> None:
    """As many replicas as are wanted, and all as they are wanted."""
    name, count = wanted.name, draft.counts[wanted.name].replicas
    _flag(draft, wanted, replicas)
    fresh = draft.staleness.fresh(wanted, replicas)
    kept = {r.id for r in fresh}
    old = [r for r in replicas if r.id not in kept]
    for replica in [r for r in old if r.state is not State.READY]:
        draft.end(replica, draft.staleness.why(replica))
        old.remove(replica)
    # While old ones are replaced, a new one that is parked ends the replacing.
    parked = [] if old else [r for r in fresh if r.state is State.PARKED]
    fresh = [r for r in fresh if r not in parked]
    if len(fresh) + adopted > count:
        for replica in sorted(fresh, key=draft.worth)[: len(fresh) + adopted - count]:
            draft.end(replica, Reason("surplus", f"{count} replicas of {name} are wanted"))
            kept.remove(replica.id)
        fresh = [r for r in fresh if r.id in kept]
    mine = [r for r in draft.world.replicas if r.model == name and r.shards and not draft.out_of_reach(r)]
    if rolling.in_place(wanted, mine):
        _replace_in_place(draft, filling, wanted, mine, [*fresh, *parked], old, count - adopted)
        return
    rolling.retire(draft, old, fresh, count)
    missing = max(count - len(fresh) - adopted, 0)
    again = parking.tries(parked, fresh, missing)
    filling.fill(wanted, fresh, old, max(missing - len(parked), 0) + again, again)


def _flag(draft: Draft, wanted: WantedModel, replicas: Iterable[ReplicaView]) -> None:
    for replica in replicas:
        stale = draft.staleness.stale(wanted, replica)
        if stale != replica.stale:
            draft.steps.append(Flag(replica.id, stale))


def _replace_in_place(
    draft: Draft,
    filling: Filling,
    wanted: WantedModel,
    mine: Iterable[ReplicaView],
    fresh: list[ReplicaView],
    old: list[ReplicaView],
    count: int,
) -> None:
    """One goes, the next one comes where it was, and only when that serves another goes."""
    if any(r.state in LEAVING for r in mine) or rolling.clears(draft, old, fresh, count):
        return
    filling.fill(wanted, fresh, [], count - len(fresh) - len(old))


def _settle(draft: Draft) -> None:
    """A node whose strays are all decided may end what it was not asked to run."""
    adopting = {shard_id for s in draft.steps if isinstance(s, Adopt) for shard_id in s.shard_ids}
    for node in draft.world.nodes:
        if node.settled or not node.reported:
            continue
        left = [s for s in draft.world.strays if s.node == node.id and s.shard_id not in adopting]
        if not any(s.foreign and not s.dismissed for s in left):
            draft.steps.append(Settle(node.id))
