"""Where a model's next replica would go, and why not elsewhere: placement's own judgement, told in full. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.core import cards, placement, room
from fleet.core.plan import Place
from fleet.core.world import WantedModel, World


@dataclass(frozen=True, slots=True)
class Explanation:
    """`chosen`: (node, profile) of the best candidate; None: nowhere, `sentence` says why."""

    model: str
    sentence: str
    candidates: tuple[placement.Candidate, ...]
    chosen: tuple[str, str] | None = None
    devices: tuple[int, ...] = ()
    """The cards that it would get."""


def explain(world: World, wanted: WantedModel) -> Explanation:
    """Every node under every profile. The ports and cards that running replicas hold are taken, as in a plan."""
    rooms = room.of(world)
    candidates = tuple(
        candidate
        for profile in wanted.profiles
        for candidate in placement.judge(wanted, profile, rooms.values(), world.settings)
    )
    match placement.place(wanted, rooms, world.settings):
        case Place() as step:
            seat = step.leader
            sentence = f"one more replica of {wanted.name} would go to {seat.node} with profile {step.profile}"
            if seat.devices:
                sentence += f", on {cards.told(cards.of(rooms[seat.node].node.facts) or (), seat.devices)}"
            return Explanation(wanted.name, sentence, candidates, (seat.node, step.profile), seat.devices)
        case unplaced:
            return Explanation(wanted.name, unplaced.reason.sentence, candidates)
