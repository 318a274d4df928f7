"""Which nodes a replica over several of them gets: of one fabric, the fastest kind that has enough. Pure.

Nodes are judged one by one as for any replica (`fleet.core.placement`); here those that fit are brought together. All
ranks get cards of one class. Never are two fabrics bridged: what one adapter does not reach hangs instead of failing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.wire.reason import Reason
from fleet.core import cards
from fleet.core.fabrics import KINDS, Island
from fleet.core.feasibility import Need
from fleet.core.plan import Seat
from fleet.core.room import Rooms, first_free


@dataclass(frozen=True, slots=True)
class Group:
    """One fabric under one profile. `nodes`: those that would be taken, the leader first; empty: too few fit."""

    fabric: str
    kind: str
    profile: str
    wanted: int
    fitting: int
    sentence: str
    nodes: tuple[str, ...] = ()
    gpu_class: str = ""
    score: float = 0.0


def groups(
    need: Need, rooms: Rooms, scores: Mapping[str, float], reasons: Mapping[str, Sequence[Reason]]
) -> tuple[Group, ...]:
    """Every fabric, the one that would be taken first. `scores` of the nodes that fit by themselves, `reasons` of the
    others."""
    found = [_group(need, rooms, island, scores, reasons) for island in rooms.fabrics.islands]
    return tuple(sorted(found, key=lambda g: (not g.nodes, KINDS.index(g.kind), -g.score, g.fabric)))


def seats(need: Need, rooms: Rooms, group: Group) -> tuple[tuple[Seat, ...], int]:
    """What each rank gets, and the port at the leader where they meet."""
    run, span = need.profile.run, _span(need)
    island = next(i for i in rooms.fabrics.islands if i.name == group.fabric)
    made = []
    for node in group.nodes:
        room = rooms[node]
        port = first_free(room.ports, span)
        assert port is not None, "feasibility.port has looked"
        devices = cards.best(_by_class(need, rooms, node)[group.gpu_class], run.gpus) if run.gpus else ()
        address = room.node.facts.address or ""
        made.append(Seat(node, port, devices, run.cpu_cores or 0, need.memory_bytes(room), address, island.link(node)))
    leader = made[0]
    meeting = first_free({*rooms[leader.node].ports, leader.port}, span)
    assert meeting is not None, "_group has looked"
    return tuple(made), meeting


def apart(need: Need, rooms: Rooms, node: str, found: Sequence[Group]) -> Reason:
    """Why a node that fits by itself is not enough."""
    mine = [g for g in found if node in _members(rooms, g.fabric)]
    if mine:
        return Reason("fabric_small", "; ".join(g.sentence for g in mine), "llmgw fabric list")
    off = "; ".join(r.sentence for r in rooms.fabrics.off.get(node, ()))
    told = f" ({off})" if off else ""
    sentence = f"{node} is on no fabric{told}, and one replica is wanted over {need.profile.run.nodes} nodes"
    return Reason("no_fabric", sentence, "llmgw fabric list")


def summary(need: Need, found: Sequence[Group]) -> str:
    """One stable sentence of a profile that fits nowhere."""
    if not found:
        return f"{need.profile.run.nodes} nodes on one fabric are wanted, and there is no fabric"
    return "; ".join(f"fabric {g.fabric}: {g.fitting} of the {g.wanted} nodes wanted fit" for g in found)


def _group(
    need: Need,
    rooms: Rooms,
    island: Island,
    scores: Mapping[str, float],
    reasons: Mapping[str, Sequence[Reason]],
) -> Group:
    run, required = need.profile.run, need.wish.required
    fitting = sorted((n for n in island.members if n in scores), key=lambda n: (-scores[n], n))
    by_class: dict[str, list[str]] = defaultdict(list)
    sizes: dict[str, tuple[int, tuple[int, int]]] = {}
    for node in fitting:
        if not run.gpus:
            by_class[""].append(node)
            continue
        for name, group in _by_class(need, rooms, node).items():
            by_class[name].append(node)
            sizes[name] = cards.smallness(group[0])
    most = max((len(nodes) for nodes in by_class.values()), default=0)
    enough = sorted(
        (name for name, nodes in by_class.items() if len(nodes) >= run.nodes),
        key=lambda name: (sizes[name] if required else (0, (0, 0)), -len(by_class[name]), name),
    )
    told = f"fabric {island.name}: {most} of the {run.nodes} nodes wanted fit"
    for name in enough:
        led = _led(need, rooms, by_class[name][: run.nodes])
        if led:
            score = sum(scores[n] for n in led) / run.nodes
            said = f"fabric {island.name}: {', '.join(led)}"
            return Group(island.name, island.kind, run.name, run.nodes, most, said, led, name, score)
        told += "; no port is left where they could meet"
    if most < len(fitting):
        told += f" with GPUs of one class ({', '.join(f'{len(ns)} × {name}' for name, ns in sorted(by_class.items()))})"
    first = next(((n, reasons[n][0]) for n in island.members if reasons.get(n)), None)
    if first is not None:
        told += f"; {first[1].sentence}" if first[0] in first[1].sentence else f"; {first[0]}: {first[1].sentence}"
    return Group(island.name, island.kind, run.name, run.nodes, most, told)


def _by_class(need: Need, rooms: Rooms, node: str) -> dict[str, cards.Cards]:
    """The free cards of each class that has enough of them there."""
    room = rooms[node]
    found = cards.groups(cards.of(room.node.facts) or (), room.devices, need.wish, node, room.node.foreign)
    return {} if isinstance(found, Reason) else {cards.kind(group[0]): group for group in found}


def _led(need: Need, rooms: Rooms, nodes: Sequence[str]) -> tuple[str, ...]:
    """The leader first: one with a port to spare where the others meet it."""
    for node in nodes:
        ports = rooms[node].ports
        own = first_free(ports, _span(need))
        if own is not None and first_free({*ports, own}, _span(need)) is not None:
            return (node, *(n for n in nodes if n != node))
    return ()


def _members(rooms: Rooms, fabric: str) -> Mapping[str, object]:
    return next(i.members for i in rooms.fabrics.islands if i.name == fabric)


def _span(need: Need) -> range:
    return range(need.settings.first_port, need.settings.last_port + 1)
