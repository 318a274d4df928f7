"""What is left on each node while a plan is being made: a ledger that placements are written into. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from fleet.core import fabrics, facility, shape
from fleet.core.fabrics import Fabrics
from fleet.core.facility import Ledger
from fleet.core.learned import Shown
from fleet.core.replica import State
from fleet.core.world import NodeView, ReplicaView, ShardView, World


@dataclass(slots=True)
class Room:
    """One node's reservations: ours alone, whether or not the engine has taken them yet."""

    node: NodeView
    ports: set[int] = field(default_factory=set)
    devices: set[int] = field(default_factory=set)
    cpu_cores: int = 0
    sharing: int = 0
    """Engines on the CPU whose profiles name no cores: they share what is not reserved (`agent.core.cpu`)."""
    memory_bytes: int = 0
    untouched_bytes: int = 0
    """Reserved, and not yet taken by the engine: the node still counts it as free."""
    models: dict[str, int] = field(default_factory=dict)
    """How many shards of each model it has that are to stay."""
    ledger: Ledger | None = None
    """Of the racks and PDUs, shared by all rooms."""
    _likeness: Hashable = None

    def take(self, model: str, shard: ShardView, *, stays: bool = True) -> None:
        """One that is on its way out holds what it has, and is no reason to put its successor elsewhere."""
        self.ports.add(shard.port)
        self.devices.update(shard.devices)
        self.cpu_cores += shard.cpu_cores
        self.sharing += _shares(shard)
        self.memory_bytes += shard.memory_bytes
        self.untouched_bytes += _untouched(shard)
        self.models[model] = self.models.get(model, 0) + stays
        self._likeness = None
        if self.ledger is not None:
            self.ledger.take(self.node.id, model, self.watts, int(stays))

    @property
    def watts(self) -> float:
        """What the node may come to draw."""
        assert self.ledger is not None, "there is nothing to reckon with"
        return self.ledger.settings.node_w + facility.may_draw_w(self.node.facts.gpus or (), self.devices)

    @property
    def likeness(self) -> Hashable:
        """Equal for rooms that differ in nothing but their names, ports, and what is free of memory and disk now: what
        stands still, and what is reserved."""
        if self._likeness is None:
            node = self.node
            self._likeness = (
                shape.of(node.facts),
                (node.cordoned, node.draining, node.connected, node.reported, node.lost),
                frozenset(node.labels.items()),
                frozenset(node.foreign),
                frozenset(self.devices),
                self.cpu_cores,
                self.sharing,
                self.memory_bytes,
                sum(self.models.values()),
            )
        return self._likeness

    def without(self, model: str, shard: ShardView, *, stays: bool = True) -> Room:
        """The room that there would be if that shard were gone; its port stays taken until it really is."""
        return Room(
            node=self.node,
            ports=self.ports,
            devices=self.devices - set(shard.devices),
            cpu_cores=self.cpu_cores - shard.cpu_cores,
            sharing=self.sharing - _shares(shard),
            memory_bytes=self.memory_bytes - shard.memory_bytes,
            # What it holds in memory comes free with it.
            untouched_bytes=self.untouched_bytes - _untouched(shard) - (shard.memory_measured_bytes or 0),
            ledger=self.ledger,
            models={**self.models, model: self.models.get(model, 0) - stays},
        )


class Rooms(dict[str, Room]):
    """Every node's room, by its id, and what several of them share."""

    shown: Shown = MappingProxyType({})
    """As `World.shown`."""
    parked: Mapping[str, tuple[ReplicaView, ...]] = MappingProxyType({})
    """By model."""

    @cached_property
    def fabrics(self) -> Fabrics:
        """Only a replica over several nodes asks for them."""
        return fabrics.of(room.node for room in self.values())


def of(world: World) -> Rooms:
    """Every node's room under what is placed now."""
    rooms = Rooms((node.id, Room(node, ports=set(node.facts.ports_taken or ()))) for node in world.nodes)
    rooms.shown = world.shown
    _fill(rooms, world)
    ledger = Ledger(world.facility)
    for room in rooms.values():
        where = facility.location(room.node.labels)
        if where.places:
            room.ledger = ledger
            ledger.put(room.node.id, where, room.watts)
            for model, shards in room.models.items():
                ledger.take(room.node.id, model, room.watts, shards)
    return rooms


def _fill(rooms: Rooms, world: World) -> None:
    parked: dict[str, tuple[ReplicaView, ...]] = {}
    for replica in world.replicas:
        if replica.state is State.PARKED:
            parked[replica.model] = (*parked.get(replica.model, ()), replica)
        for shard in replica.shards:
            if shard.node in rooms:
                if shard.rank == 0 and replica.meeting_port is not None:
                    rooms[shard.node].ports.add(replica.meeting_port)
                if replica.state is State.PARKED:
                    rooms[shard.node].ports.add(shard.port)  # it runs nothing, and its row still names the port
                else:
                    rooms[shard.node].take(replica.model, shard, stays=_stays(replica))
    rooms.parked = parked
    for stray in world.strays:
        if stray.port is not None and stray.node in rooms:
            rooms[stray.node].ports.add(stray.port)
            for rank in rooms[stray.node].node.facts.ranks or ():
                if rank.shard_id == stray.shard_id:  # what it runs on is taken, whoever ordered it
                    rooms[stray.node].devices.update(rank.devices)
                    if rank.gang is not None and stray.shard_id.endswith(".0"):
                        rooms[stray.node].ports.add(rank.gang.port)


def _stays(replica: ReplicaView) -> bool:
    return replica.state not in (State.DRAINING, State.STOPPING)


def relieved(rooms: Rooms, replica: ReplicaView) -> Rooms:
    """The rooms as they would be without `replica`."""
    changed = Rooms(rooms)
    changed.shown, changed.parked = rooms.shown, rooms.parked
    ledger: Ledger | None = None
    for shard in replica.shards:
        if shard.node in changed:
            room = changed[shard.node] = changed[shard.node].without(replica.model, shard, stays=_stays(replica))
            if room.ledger is not None:
                room.ledger = ledger = ledger or room.ledger.copy()
                ledger.take(shard.node, replica.model, room.watts, -int(_stays(replica)))
    return changed


def first_free(ports: set[int], span: Iterable[int]) -> int | None:
    return next((p for p in span if p not in ports), None)


def _shares(shard: ShardView) -> bool:
    return not shard.devices and not shard.cpu_cores


def _untouched(shard: ShardView) -> int:
    return max(shard.memory_bytes - (shard.memory_measured_bytes or 0), 0)
