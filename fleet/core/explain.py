"""Where a model's next replica would go, and why not elsewhere: placement's own judgement, told in full. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.core import cards, placement, room
from fleet.core.plan import Place, Seat
from fleet.core.spanning import Group
from fleet.core.world import WantedModel, World


@dataclass(frozen=True, slots=True)
class Explanation:
    """`chosen`: (node, profile) of the best candidate, the leader's of several; None: nowhere, `sentence` says why."""

    model: str
    sentence: str
    candidates: tuple[placement.Candidate, ...]
    chosen: tuple[str, str] | None = None
    devices: tuple[int, ...] = ()
    """The cards that it would get there."""
    seats: tuple[Seat, ...] = ()
    groups: tuple[Group, ...] = ()
    """Every fabric, for the profiles that want several nodes."""


def explain(world: World, wanted: WantedModel) -> Explanation:
    """Every node under every profile. The ports and cards that running replicas hold are taken, as in a plan."""
    rooms = room.of(world)
    judged = [placement.judge(wanted, profile, rooms, world.settings) for profile in wanted.profiles]
    candidates = tuple(c for j in judged for c in j.candidates)
    groups = tuple(g for j in judged for g in j.groups)
    match placement.place(wanted, rooms, world.settings):
        case Place() as step:
            seat = step.leader
            where = " and ".join(s.node for s in step.seats)
            sentence = f"one more replica of {wanted.name} would go to {where} with profile {step.profile}"
            if step.fabric:
                sentence += f", over {step.fabric}"
            if seat.devices:
                sentence += f", on {'; '.join(_on(rooms, s, several=len(step.seats) > 1) for s in step.seats)}"
            sentence += _sharing(rooms[seat.node], step)
            return Explanation(
                wanted.name, sentence, candidates, (seat.node, step.profile), seat.devices, step.seats, groups
            )
        case unplaced:
            return Explanation(wanted.name, unplaced.reason.sentence, candidates, groups=groups)


def _on(rooms: room.Rooms, seat: Seat, *, several: bool) -> str:
    told = cards.told(cards.of(rooms[seat.node].node.facts) or (), seat.devices)
    return f"{told} of {seat.node}" if several else told


def _sharing(taken: room.Room, step: Place) -> str:
    """That it would not have its node's cores to itself, where nobody has said how many it may use."""
    others, has = taken.sharing - 1, taken.node.facts.cpu_count
    if step.run.gpus or step.run.cpu_cores or others < 1 or has is None:
        return ""
    whom = "another engine" if others == 1 else f"{others} other engines"
    free = max(has - taken.cpu_cores, 1)
    return f", where it shares {free} core{'' if free == 1 else 's'} with {whom}: profiles that name cpu_cores do not"
