"""Places for the replicas that a model lacks, or why there are none. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from agent.wire.reason import Reason
from fleet.core import placement, rolling, scale
from fleet.core.draft import Draft
from fleet.core.eviction import Held, Turns
from fleet.core.plan import Place
from fleet.core.replica import State
from fleet.core.world import ReplicaView, WantedModel

MOST_PLACES = 100
"""In one pass: a commit stays short, and the next pass follows at once."""
_WAITS = Reason("waits_its_turn", "replicas are replaced one at a time: it waits until the one before it serves")


class Filling:
    """Goes along the models of one pass, in their line."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.turns = Turns(draft.world, draft.counts, draft.now)
        self.memory: placement.Memory = {}
        self.places = 0

    def fill(
        self,
        wanted: WantedModel,
        fresh: Sequence[ReplicaView],
        old: list[ReplicaView],
        missing: int,
        again: int = 0,
    ) -> None:
        """Places pending replicas and as many new ones as are missing. While old ones serve, one at a time beyond
        the count, so that a change does not double the load. `again` of the missing are in the stead of parked ones:
        those say what is wrong, and no others are made to wait beside them."""
        draft = self.draft
        waiting: list[ReplicaView | None] = [r for r in fresh if r.state is State.PENDING]
        waiting += [None] * missing
        busy = any(r.state not in (State.READY, State.PENDING) for r in fresh)
        nowhere: Reason | None = None
        awaited = draft.awaited.get(wanted.name, [])
        for ordinal, replica in enumerate(waiting):
            if ordinal < len(awaited):
                draft.defer(wanted.name, replica, awaited[ordinal], ordinal)
                continue
            if not draft.world.synced:
                return
            if old and busy:
                draft.defer(wanted.name, replica, _WAITS, ordinal)
                continue
            busy = True
            if nowhere is not None:  # rooms only fill up within a pass
                if ordinal < len(waiting) - again:
                    draft.defer(wanted.name, replica, nowhere, ordinal)
                continue
            if self.places >= MOST_PLACES:
                return
            nowhere = self._place(wanted, replica)
            if nowhere is None:
                continue
            if ordinal >= len(waiting) - again:
                return
            held = self._turn(wanted) if not old and not ordinal else None
            if draft.counts[wanted.name].reason.code == scale.EXPECTED and replica is None:
                return  # nobody waits for it: it is loaded when there happens to be room
            draft.defer(wanted.name, replica, held.reason if held is not None else nowhere, ordinal, held)
            rolling.make_way(draft, wanted, old)

    def _place(self, wanted: WantedModel, replica: ReplicaView | None) -> Reason | None:
        """Why it has no place; None: it has one."""
        draft, name = self.draft, replica.id if replica else ""
        match placement.place(wanted, draft.rooms, draft.world.settings, name, self.memory):
            case Place() as step:
                draft.steps.append(step)
                self.places += 1
                self.turns.placed(step)
                return None
            case unplaced:
                return unplaced.reason

    def _turn(self, wanted: WantedModel) -> Held | None:
        """Whose card it gets, where somebody asks for it and another on-demand model has one; that goes if it may."""
        count = self.draft.counts[wanted.name]
        if not count.on_demand or count.reason.code == scale.EXPECTED:
            return None
        held = self.turns.look(wanted, self.draft.rooms)
        if held is None:
            holder = self.turns.kept(wanted, self.draft.rooms)
            if holder is None:
                return None
            sentence = f"{holder} is kept loaded on the card that it would need"
            return Held("", Reason("card_is_kept", sentence, f"llmgw scale {holder} --min 0 --max 1"))
        if held.evict is not None:
            self.draft.end(*held.evict)
        return held
