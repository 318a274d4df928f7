"""May this profile run on that node? One small function a check: None, or the reason in people's words. Pure.

A new check is a function here and a line in `STANDING` or `MOVING`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from agent.engines import ENGINES
from agent.wire.reason import Reason
from catalog.core.definition import ProfileDefinition
from fleet.core import cards
from fleet.core.cards import Wish
from fleet.core.learned import Known
from fleet.core.room import Room, first_free
from fleet.core.sizes import gib
from llmgw.cluster.core.sections import FleetSettings

Check = Callable[["Need", Room], Reason | None]


@dataclass(frozen=True, slots=True)
class Need:
    """What one replica asks of a node."""

    model: str
    profile: ProfileDefinition
    settings: FleetSettings
    wish: Wish
    """The cards."""
    source: str = ""
    """Where its weights come from."""
    shown: Mapping[str, Known] = field(default_factory=dict)
    """What such runs have taken here, by the class of card."""
    ran_out: str = ""
    """The replica that found `wish.takes.ran_out_bytes` too little."""
    failed_on: Mapping[str, str] = field(default_factory=dict)
    """By node: the replica of it that is parked there."""

    def memory_bytes(self, room: Room) -> int:
        """What its profile says, else what such runs have taken here, else nothing."""
        run = self.profile.run
        if run.memory_bytes or not self.shown:
            return run.memory_bytes or 0
        kinds = {run.gpu_class} if run.gpu_class or not run.gpus else set(map(cards.kind, room.node.facts.gpus or ()))
        return max((self.shown[k or ""].memory_bytes for k in kinds if (k or "") in self.shown), default=0)


def rejections(need: Need, room: Room) -> tuple[Reason, ...]:
    """Every reason why not; empty where it fits."""
    return tuple(reason for check in (*STANDING, *MOVING) if (reason := check(need, room)) is not None)


def first(checks: Iterable[Check], need: Need, room: Room) -> str:
    """The code of the first reason why not; empty where it fits."""
    return next((reason.code for check in checks if (reason := check(need, room)) is not None), "")


def connected(need: Need, room: Room) -> Reason | None:
    node = room.node
    if node.lost:
        return Reason(
            "node_lost", f"{node.id} is lost: it has not been heard for too long", f"llmgw node show {node.id}"
        )
    if not node.connected:
        return Reason("node_not_connected", f"{node.id} is not connected", f"llmgw node show {node.id}")
    if not node.reported:
        return Reason("node_not_reported", f"{node.id} has not reported yet")
    return None


def cordoned(need: Need, room: Room) -> Reason | None:
    node = room.node
    if node.draining:
        return Reason("node_draining", f"{node.id} is being drained", f"llmgw node uncordon {node.id}")
    if node.cordoned:
        return Reason("node_cordoned", f"{node.id} is cordoned", f"llmgw node uncordon {node.id}")
    return None


def held(need: Need, room: Room) -> Reason | None:
    """Its rack, row, room, site or PDU is held."""
    return room.ledger.held(room.node.id) if room.ledger is not None else None


def power(need: Need, room: Room) -> Reason | None:
    """Its cards at their limits would pass a cap of where it stands."""
    run, ledger = need.profile.run, room.ledger
    if not run.gpus or ledger is None or not ledger.capped(room.node.id):
        return None
    free = [c for c in room.node.facts.gpus or () if c.index not in room.devices and need.wish.meets(c)]
    if len(free) < run.gpus:  # said already, and nothing would draw more
        return None
    adds = sorted(((c.power_limit_w or 0.0) - (c.power_w or 0.0) for c in free), reverse=True)
    return ledger.power(room.node.id, max(sum(adds[: run.gpus]), 0.0))


def labels(need: Need, room: Room) -> Reason | None:
    missing = {k: v for k, v in need.profile.labels.items() if room.node.labels.get(k) != v}
    if not missing:
        return None
    wanted = ", ".join(f"{k}={v}" for k, v in sorted(missing.items()))
    return Reason(
        "label_missing",
        f"{room.node.id} has not the label {wanted} that profile {need.profile.run.name} wants",
        f"llmgw node label {room.node.id} {wanted.replace(', ', ' ')}",
    )


def engine(need: Need, room: Room) -> Reason | None:
    """The node must have the profile's engine, usable; what the engine itself forbids is `engine_says`."""
    wanted, node = need.profile.run.engine, room.node
    if node.facts.engines is None:
        return Reason("engines_unknown", f"{node.id} has not said which engines it has")
    found = [e for e in node.facts.engines if e.name == wanted]
    if not found:
        has = ", ".join(sorted({e.name for e in node.facts.engines})) or "none"
        return Reason("engine_missing", f"{node.id} has no engine {wanted} (it has: {has})")
    if all(e.problem for e in found):
        return Reason("engine_unusable", f"{wanted} on {node.id} cannot be used: {found[0].problem}")
    return None


def engine_says(need: Need, room: Room) -> Reason | None:
    """What the engine itself knows to forbid a profile on these facts."""
    if engine(need, room) is not None:  # said already
        return None
    contract = ENGINES.get(need.profile.run.engine)
    if contract is None:
        return Reason("engine_unknown", f"this version knows no engine {need.profile.run.engine}")
    problems = contract.problems(need.profile.run, room.node.facts)
    return problems[0] if problems else None


def cpu(need: Need, room: Room) -> Reason | None:
    wanted, has = need.profile.run.cpu_cores, room.node.facts.cpu_count
    if not wanted:
        return None
    if has is None:
        return Reason("cpu_unknown", f"{room.node.id} has not said how many CPU cores it has")
    free = has - room.cpu_cores
    if wanted <= free:
        return None
    return Reason("cpu", f"{wanted} CPU cores are wanted, and {free} of {room.node.id}'s {has} are not reserved")


def memory(need: Need, room: Room) -> Reason | None:
    wanted, has = need.memory_bytes(room), room.node.facts.memory_bytes
    if not wanted:
        return None
    if has is None:
        return Reason("memory_unknown", f"{room.node.id} has not said how much memory it has")
    unreserved = has - room.memory_bytes
    if wanted <= unreserved:
        return None
    return Reason(
        "memory",
        f"{gib(wanted)} of memory are wanted, and {gib(unreserved)} of {room.node.id}'s {gib(has)} are not reserved",
    )


def memory_free(need: Need, room: Room) -> Reason | None:
    wanted, free = need.memory_bytes(room), room.node.memory_free_bytes
    if not wanted or free is None or wanted <= free - room.untouched_bytes or memory(need, room) is not None:
        return None
    return Reason(
        "memory_taken",
        f"{gib(wanted)} of memory are wanted, and {room.node.id} has only "
        f"{gib(max(free - room.untouched_bytes, 0))} free: other programs hold the rest",
    )


def disk(need: Need, room: Room) -> Reason | None:
    wanted, free = need.profile.min_disk_bytes, room.node.disk_free_bytes
    if not wanted or free is None or wanted <= free:
        return None
    return Reason("disk", f"{gib(wanted)} of disk are wanted, and {room.node.id} has {gib(free)} free")


def card_memory(need: Need, room: Room) -> Reason | None:
    """Its cards must have what runs here have taken of one."""
    wish, takes, node = need.wish, need.wish.takes, room.node.id
    if takes is None or not wish.count:
        return None
    asked = [c for c in room.node.facts.gpus or () if wish.asks(c)]
    small = [c for c in asked if not wish.meets(c)]
    if not len(asked) - len(small) < wish.count <= len(asked):
        return None
    largest = max(small, key=lambda c: c.memory_bytes or 0)
    has = f"{node}'s {cards.kind(largest)} has {gib(largest.memory_bytes or 0)}"
    if (largest.memory_bytes or 0) <= takes.ran_out_bytes:
        sentence = f"{need.ran_out} ran out of memory on a card of {gib(takes.ran_out_bytes)}, and {has}"
        return Reason("card_small", sentence, f"llmgw why {need.ran_out}")
    runs = f"{takes.runs} run{'' if takes.runs == 1 else 's'} here took"
    sentence = f"{runs} up to {gib(takes.card_bytes)} of each card, and {has}: a shorter context takes less"
    return Reason("card_small", sentence, f"llmgw model context {need.model} TOKENS")


def gpus(need: Need, room: Room) -> Reason | None:
    node = room.node
    if not need.wish.count or card_memory(need, room) is not None:  # said already
        return None
    found = cards.of(node.facts)
    if found is None:
        return Reason("gpus_unknown", f"{node.id} has not said which GPUs it has")
    match cards.groups(found, room.devices, need.wish, node.id, node.foreign):
        case Reason("gpu_class", sentence) if need.wish.min_memory_bytes is not None:
            return Reason("gpu_class", sentence, f"llmgw model show {need.model}")
        case Reason() as reason:
            return reason
        case _:
            return None


def parked_there(need: Need, room: Room) -> Reason | None:
    """Where every start of it failed the next one would."""
    replica = need.failed_on.get(room.node.id)
    if replica is None:
        return None
    sentence = f"{replica} of {need.model} is parked on {room.node.id}: its starts failed there"
    return Reason("parked_there", sentence, f"llmgw replica retry {replica}")


def port(need: Need, room: Room) -> Reason | None:
    span = range(need.settings.first_port, need.settings.last_port + 1)
    if first_free(room.ports, span) is not None:
        return None
    return Reason(
        "ports",
        f"every port of {room.node.id} from {span.start} to {span.stop - 1} is taken",
        "llmgw config set fleet.last_port N",
    )


def address(need: Need, room: Room) -> Reason | None:
    """The ranks of several nodes meet over their addresses."""
    if need.profile.run.nodes < 2 or room.node.facts.address:
        return None
    return Reason("address_unknown", f"{room.node.id} has not said at which address others reach it")


STANDING: tuple[Check, ...] = (
    connected,
    cordoned,
    held,
    labels,
    engine,
    engine_says,
    card_memory,
    gpus,
    cpu,
    memory,
    address,
)
"""In the order in which people want to read them. These look at nothing but a room's likeness (`fleet.core.room`):
rooms that are alike are judged once."""
MOVING: tuple[Check, ...] = (parked_there, memory_free, disk, port, power)
"""These look at what moves all the time or is of one node alone, and are quick."""
