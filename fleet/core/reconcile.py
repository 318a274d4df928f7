"""From what is wanted and what is observed to a plan. Pure: the same input gives the same plan, and a plan that
was carried out leaves an empty one.

A pass looks at each replica by itself (lost, drained long enough, ready to try again), adopts engines that run
and that nobody knows, then evens out each model. Before the world is synced nothing is ended and nothing new is
started: what is wanted may be running on a node that has not spoken yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

from agent.wire.reason import Reason
from agent.wire.shard import CARD_HELD, ShardState
from fleet.core import adoption, parking, placement, rolling, room, scale, swap
from fleet.core.eviction import FREED, GETS, Held, Turns
from fleet.core.plan import (
    STOPS,
    Adopt,
    Drain,
    Flag,
    Forget,
    Hold,
    Lose,
    Place,
    Plan,
    Retry,
    Settle,
    Step,
    Stop,
    Want,
)
from fleet.core.replica import State
from fleet.core.room import Rooms
from fleet.core.world import Demand, NodeView, ReplicaView, WantedModel, World

_LEAVING = frozenset({State.DRAINING, State.STOPPING})
_SERVING = State.READY
_UNDER_WAY = frozenset({State.STARTING, State.LOADING, State.READY})
MOST_PLACES = 100
"""In one pass: a commit stays short, and the next pass follows at once."""
_NEAR_S = 2.0
"""Two expected times that are no news to one another."""
_WAITS = Reason("waits_its_turn", "replicas are replaced one at a time: it waits until the one before it serves")


def plan(world: World, wanted: Iterable[WantedModel], now: float) -> Plan:
    """The steps that bring the fleet nearer to what is wanted."""
    return _Pass(world, tuple(sorted(wanted, key=lambda w: w.name)), now).run()


class _Pass:
    """One pass: gathers steps while it keeps the ledger of what they take."""

    def __init__(self, world: World, wanted: tuple[WantedModel, ...], now: float) -> None:
        self.world, self.wanted, self.now = world, wanted, now
        self.nodes = {n.id: n for n in world.nodes}
        self.models = {w.name: w for w in wanted}
        self.counts = scale.counts(world, wanted, now)
        self.turns = Turns(world, self.counts, now)
        self.lost = {n.id for n in world.nodes if n.lost}
        self.drained = {n.id for n in world.nodes if n.draining}
        self.judged: dict[tuple[str, str, int, int], bool] = {}
        self.memory: placement.Memory = {}
        self.places = 0
        self.steps: list[Step] = []
        self.ended: set[str] = set()
        self.by_model: dict[str, list[ReplicaView]] = {}
        self.awaited: Mapping[str, list[Reason]] = {}
        """By model: of each replica that a rank which may yet be reported would make whole."""

    @cached_property
    def rooms(self) -> Rooms:
        """Where nothing is to be done nobody asks what is left where."""
        return room.of(self.world)

    def run(self) -> Plan:
        for replica in self.world.replicas:
            if self._tend(replica):
                self.by_model.setdefault(replica.model, []).append(replica)
        adopted = self._adopt()
        for name in sorted({*self.models, *self.by_model}, key=self._place_in_line):
            self._even_out(name, self.by_model.get(name, []), adopted.get(name, 0))
        self._settle()
        steps = self.steps if self.world.synced else [s for s in self.steps if not isinstance(s, STOPS)]
        return Plan(tuple(steps))

    def _tend(self, replica: ReplicaView) -> bool:
        """What one replica needs by itself; whether it counts for its model."""
        if replica.state in _LEAVING:
            if not replica.shards:
                self.steps.append(Forget(replica.id))
            elif replica.state is State.DRAINING and self._drained_long_enough(replica):
                self.steps.append(Stop(replica.id, Reason(replica.reason_code or "drained", replica.reason)))
            return False
        if replica.state is State.LOST:
            if not replica.shards:
                self.steps.append(Forget(replica.id))
            elif self._ended_while_away(replica):
                self.steps.append(Stop(replica.id, Reason("lost", "it ended while its node was away")))
            elif self.world.synced and (stopped := self._stopped(replica.model)) is not None:
                self.steps.append(Stop(replica.id, stopped))
            return False
        if replica.state in (State.PENDING, State.PARKED):
            return True
        if not replica.shards:  # its node was removed
            self.steps.append(Forget(replica.id))
            return False
        if replica.run is not None and 1 < replica.run.nodes != len(replica.shards):
            reason = Reason("rank_gone", "a rank of it is gone with its node")
            self.steps.append(Stop(replica.id, reason))
            return False
        away = next((s.node for s in replica.shards if s.node in self.lost), None) if self.lost else None
        if away is not None:
            if self.world.synced and (stopped := self._stopped(replica.model)) is not None:
                self.steps.append(Stop(replica.id, stopped))
                return False
            if self.world.synced:
                sentence = f"{away} has not been heard for {self.world.settings.node_lost_s:.0f} s"
                reason = Reason("node_lost", sentence, f"llmgw node show {away}")
                # The other ranks of several are nothing without it, and hold cards that the next one needs.
                self.steps.append(Stop(replica.id, reason) if len(replica.shards) > 1 else Lose(replica.id, reason))
                return False
            return True
        if replica.state is State.BACKOFF and self.world.synced and (others := self._held_by_others(replica)):
            self.steps.append(Stop(replica.id, others))
            return False
        due = replica.next_try_at is None or replica.next_try_at <= self.now
        if replica.state is State.BACKOFF and due and self._present(replica):
            ports = tuple(self._another_port(s.node, s.port) for s in replica.shards)
            meeting = replica.meeting_port
            self.steps.append(
                Retry(
                    replica.id,
                    ports,
                    None if meeting is None else self._another_port(replica.shards[0].node, max(meeting, ports[0])),
                )
            )
        return True

    def _stopped(self, model: str) -> Reason | None:
        """Why nothing of the model is to run, where somebody has said so: not even what may come back with its node."""
        if model not in self.models:
            return Reason("model_removed", f"the model {model} was removed")
        count = self.counts[model]
        return None if count.replicas or count.on_demand else count.reason

    def _drained_long_enough(self, replica: ReplicaView) -> bool:
        count = self.counts.get(replica.model)
        return swap.drained(self.world, replica, self.now, served_on=count is not None and count.replicas > 0)

    def _another_port(self, node: str, port: int) -> int:
        """The next one that is free on the node; its own where there is no other."""
        first, last = self.world.settings.first_port, self.world.settings.last_port
        taken = self.rooms[node].ports
        start = min(max(port + 1, first), last + 1)
        found = room.first_free(taken, (*range(start, last + 1), *range(first, start)))
        if found is None:
            return port
        taken.add(found)
        return found

    def _adopt(self) -> dict[str, int]:
        """Engines that run just as they are wanted and that no row knows; how many a model. Those of which a rank was
        not reported yet are noted, and waited for."""
        counts: Counter[str] = Counter()
        if not self.world.strays:
            return counts

        def missing(model: str) -> int:
            fresh = self._fresh(self.models[model], self.by_model.get(model, []))
            return self.counts[model].replicas - sum(r.state in _UNDER_WAY for r in fresh)

        found = adoption.look(self.world, self.models, missing, lambda: self.rooms.fabrics, self.now)
        self.awaited = found.awaited
        for step in found.steps:
            self.steps.append(step)
            counts[step.model] += 1
            for shard in adoption.shards(step):
                self.rooms[shard.node].take(step.model, shard)
            if step.meeting_port is not None:
                self.rooms[step.leader.node].ports.add(step.meeting_port)
        return counts

    def _even_out(self, name: str, replicas: list[ReplicaView], adopted: int) -> None:
        wanted = self.models.get(name)
        count = self.counts[name].replicas if wanted is not None else 0
        if wanted is None or count == 0:
            removed = Reason("model_removed", f"the model {name} was removed")
            for replica in replicas:
                self._end(replica, removed if wanted is None else self.counts[name].reason)
            return
        for replica in replicas:
            stale = self._stale(wanted, replica)
            if stale != replica.stale:
                self.steps.append(Flag(replica.id, stale))
        fresh = self._fresh(wanted, replicas)
        kept = {r.id for r in fresh}
        old = [r for r in replicas if r.id not in kept]
        for replica in [r for r in old if r.state is not _SERVING]:
            self._end(replica, self._why_old(replica))
            old.remove(replica)
        # While old ones are replaced, a new one that is parked ends the replacing.
        parked = [] if old else [r for r in fresh if r.state is State.PARKED]
        fresh = [r for r in fresh if r not in parked]
        if len(fresh) + adopted > count:
            for replica in sorted(fresh, key=self._worth)[: len(fresh) + adopted - count]:
                self._end(replica, Reason("surplus", f"{count} replicas of {name} are wanted"))
                kept.remove(replica.id)
            fresh = [r for r in fresh if r.id in kept]
        mine = [r for r in self.world.replicas if r.model == name and r.shards and not self._out_of_reach(r)]
        if rolling.in_place(wanted, mine):
            self._replace_in_place(wanted, mine, [*fresh, *parked], old, count - adopted)
            return
        self._retire(old, fresh, count)
        missing = max(count - len(fresh) - adopted, 0)
        again = parking.tries(parked, fresh, missing)
        self._start(wanted, fresh, old, max(missing - len(parked), 0) + again, again)

    def _start(
        self, wanted: WantedModel, fresh: list[ReplicaView], old: list[ReplicaView], missing: int, again: int = 0
    ) -> None:
        """Places pending replicas and as many new ones as are missing. While old ones serve, one at a time beyond
        the count, so that a change does not double the load. `again` of the missing are in the stead of parked ones:
        those say what is wrong, and no others are made to wait beside them."""
        waiting: list[ReplicaView | None] = [r for r in fresh if r.state is State.PENDING]
        waiting += [None] * missing
        busy = any(r.state not in (_SERVING, State.PENDING) for r in fresh)
        nowhere: Reason | None = None
        awaited = self.awaited.get(wanted.name, [])
        for ordinal, replica in enumerate(waiting):
            if ordinal < len(awaited):
                self._defer(wanted, replica, awaited[ordinal], ordinal)
                continue
            if not self.world.synced:
                return
            if old and busy:
                self._defer(wanted, replica, _WAITS, ordinal)
                continue
            busy = True
            if nowhere is not None:  # rooms only fill up within a pass
                if ordinal < len(waiting) - again:
                    self._defer(wanted, replica, nowhere, ordinal)
                continue
            if self.places >= MOST_PLACES:
                return
            name = replica.id if replica else ""
            match placement.place(wanted, self.rooms, self.world.settings, name, self.memory):
                case Place() as step:
                    self.steps.append(step)
                    self.places += 1
                    self.turns.placed(step)
                case unplaced:
                    nowhere = unplaced.reason
                    if ordinal >= len(waiting) - again:
                        return
                    held = self._turn(wanted) if not old and not ordinal else None
                    if self.counts[wanted.name].reason.code == scale.EXPECTED and replica is None:
                        return  # nobody waits for it: it is loaded when there happens to be room
                    self._defer(wanted, replica, held.reason if held is not None else nowhere, ordinal, held)
                    self._make_way(wanted, old)

    def _turn(self, wanted: WantedModel) -> Held | None:
        """Whose card it gets, where somebody asks for it and another on-demand model has one; that goes if it may."""
        count = self.counts[wanted.name]
        if not count.on_demand or count.reason.code == scale.EXPECTED:
            return None
        held = self.turns.look(wanted, self.rooms)
        if held is None:
            holder = self.turns.kept(wanted, self.rooms)
            if holder is None:
                return None
            sentence = f"{holder} is kept loaded on the card that it would need"
            return Held("", Reason("card_is_kept", sentence, f"llmgw scale {holder} --min 0 --max 1"))
        if held.evict is not None:
            self._end(*held.evict)
        return held

    def _place_in_line(self, name: str) -> tuple[bool, float, str]:
        """What is kept loaded goes first; then who has waited longest."""
        count = self.counts.get(name)
        if count is None or not count.on_demand:
            return False, 0.0, name
        return True, swap.place(self.world.demand.get(name, Demand())), name

    def _replace_in_place(
        self,
        wanted: WantedModel,
        mine: list[ReplicaView],
        fresh: list[ReplicaView],
        old: list[ReplicaView],
        count: int,
    ) -> None:
        """One goes, the next one comes where it was, and only when that serves another goes."""
        if any(r.state in _LEAVING for r in mine):
            return
        if old and len(fresh) + len(old) >= count and rolling.serve(fresh):
            last = min(old, key=self._worth)
            self._end(last, self._why_old(last))
            return
        self._start(wanted, fresh, [], count - len(fresh) - len(old))

    def _defer(
        self, wanted: WantedModel, replica: ReplicaView | None, reason: Reason, ordinal: int, held: Held | None = None
    ) -> None:
        """It stays pending, or becomes so, and says why."""
        by, free_at = (held.by, held.free_at) if held is not None else ("", None)
        if replica is None:
            self.steps.append(Want(wanted.name, reason, ordinal, by, free_at))
            return
        promised = replica.reason_code == GETS and reason.code == FREED and replica.held_by == by
        same = (replica.reason_code, replica.reason, replica.held_by) == (reason.code, reason.sentence, by)
        if not promised and not (same and _near(replica.free_at, free_at)):
            self.steps.append(Hold(replica.id, reason, by, free_at, kept=reason.code == GETS))

    def _retire(self, old: list[ReplicaView], fresh: list[ReplicaView], count: int) -> None:
        """Ends serving replicas that differ, as far as enough others serve."""
        serving = sum(r.state is _SERVING for r in fresh)
        spare = serving + len(old) - count
        for replica in sorted(old, key=self._worth)[: max(spare, 0)]:
            self._end(replica, self._why_old(replica))
            old.remove(replica)

    def _make_way(self, wanted: WantedModel, old: list[ReplicaView]) -> None:
        """Nothing new fits beside the old: what is on a node that is drained goes anyway; else one is replaced in
        place, if the new one would fit there."""
        for replica in [r for r in old if self._drained(r)]:
            self._end(replica, self._why_old(replica))
            old.remove(replica)
        mine = (r for r in self.world.replicas if r.model == wanted.name)
        if any((r.state in _LEAVING and not self._out_of_reach(r)) or r.id in self.ended for r in mine):
            return  # what that one holds is free in a moment
        for replica in sorted(old, key=self._worth):
            if placement.fits(wanted, room.relieved(self.rooms, replica), self.world.settings):
                self._end(replica, self._why_old(replica))
                old.remove(replica)
                return

    def _end(self, replica: ReplicaView, reason: Reason) -> None:
        if not self.world.synced or replica.id in self.ended:
            return
        self.ended.add(replica.id)
        if not replica.shards:
            self.steps.append(Forget(replica.id))
        elif replica.state is _SERVING and self.world.settings.drain_s > 0:
            self.steps.append(Drain(replica.id, reason))
        else:
            self.steps.append(Stop(replica.id, reason))

    def _settle(self) -> None:
        """A node whose strays are all decided may end what it was not asked to run."""
        adopting = {shard_id for s in self.steps if isinstance(s, Adopt) for shard_id in s.shard_ids}
        for node in self.world.nodes:
            if node.settled or not node.reported:
                continue
            left = [s for s in self.world.strays if s.node == node.id and s.shard_id not in adopting]
            if not any(s.foreign and not s.dismissed for s in left):
                self.steps.append(Settle(node.id))

    def _fresh(self, wanted: WantedModel, replicas: list[ReplicaView]) -> list[ReplicaView]:
        return [r for r in replicas if not (self._stale(wanted, r) or self._drained(r) or rolling.due(wanted, r))]

    def _stale(self, wanted: WantedModel, replica: ReplicaView) -> bool:
        """Whether what was placed would be started otherwise today. Copies of one spec are judged once."""
        if replica.run is None:
            return False
        key = (wanted.name, replica.profile, id(replica.run), id(replica.source))
        found = self.judged.get(key)
        if found is None:
            profile = wanted.profile(replica.profile)
            found = profile is None or (profile.run, wanted.source(profile)) != (replica.run, replica.source)
            self.judged[key] = found
        return found

    def _why_old(self, replica: ReplicaView) -> Reason:
        if self._drained(replica):
            away = next(s.node for s in replica.shards if s.node in self.drained)
            return Reason("node_draining", f"{away} is being drained")
        if replica.stale or self._stale(self.models[replica.model], replica):
            return Reason("stale", f"the definition of {replica.model} has changed")
        return Reason("restart", f"{replica.model} is being restarted")

    def _worth(self, replica: ReplicaView) -> tuple[bool, int, float, str]:
        """The least worth first: not serving, on a crowded or cordoned node, young."""
        order = (State.PARKED, State.PENDING, State.BACKOFF, State.STARTING, State.LOADING, State.READY)
        cordoned = any((n := self.nodes.get(s.node)) is not None and n.cordoned for s in replica.shards)
        return (not cordoned and replica.state is _SERVING, order.index(replica.state), -replica.created, replica.id)

    def _drained(self, replica: ReplicaView) -> bool:
        return bool(self.drained) and any(s.node in self.drained for s in replica.shards)

    def _out_of_reach(self, replica: ReplicaView) -> bool:
        """It is to end, and ends when its node is back: nobody waits for what it holds."""
        return replica.state in _LEAVING and any(s.node in self.lost for s in replica.shards)

    def _present(self, replica: ReplicaView) -> bool:
        return not self._any_node(replica, lambda n: not (n.connected and n.reported))

    def _any_node(self, replica: ReplicaView, test: Callable[[NodeView], bool]) -> bool:
        return any(test(n) for s in replica.shards if (n := self.nodes.get(s.node)) is not None)

    def _held_by_others(self, replica: ReplicaView) -> Reason | None:
        """It was kept from a card that others hold, and still do: it is placed anew, where there is another."""
        if replica.reason_code != CARD_HELD:
            return None
        held = any(d in self.nodes[s.node].foreign for s in replica.shards if s.node in self.nodes for d in s.devices)
        return Reason(CARD_HELD, replica.reason) if held else None

    def _ended_while_away(self, replica: ReplicaView) -> bool:
        gone = all(s.observed in (None, ShardState.STOPPED, ShardState.FAILED) for s in replica.shards)
        return gone and self._present(replica) and not any(s.node in self.lost for s in replica.shards)


def _near(one: float | None, other: float | None) -> bool:
    return one is other if one is None or other is None else abs(one - other) <= _NEAR_S
