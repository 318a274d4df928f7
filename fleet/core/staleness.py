"""Whether a replica is what its model wants today, where it may stay, and why not. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.wire.reason import Reason
from fleet.core.world import ReplicaView, WantedModel, World


def due(wanted: WantedModel, replica: ReplicaView) -> bool:
    """Whether it runs from before somebody asked for fresh ones."""
    return replica.run is not None and wanted.restarted_at is not None and replica.created < wanted.restarted_at


class Staleness:
    """Of the replicas of one pass: copies of one spec are judged once."""

    def __init__(self, world: World, models: Mapping[str, WantedModel]) -> None:
        self.models = models
        self.draining = {n.id for n in world.nodes if n.draining}
        self._judged: dict[tuple[str, str, int, int], bool] = {}

    def fresh(self, wanted: WantedModel, replicas: Iterable[ReplicaView]) -> list[ReplicaView]:
        """Those that stay."""
        return [r for r in replicas if not (self.stale(wanted, r) or self.drained(r) or due(wanted, r))]

    def stale(self, wanted: WantedModel, replica: ReplicaView) -> bool:
        """Whether what was placed would be started otherwise today."""
        if replica.run is None:
            return False
        key = (wanted.name, replica.profile, id(replica.run), id(replica.source))
        found = self._judged.get(key)
        if found is None:
            profile = wanted.profile(replica.profile)
            found = profile is None or (profile.run, wanted.source(profile)) != (replica.run, replica.source)
            self._judged[key] = found
        return found

    def drained(self, replica: ReplicaView) -> bool:
        """Whether a node of it is being drained."""
        return bool(self.draining) and any(s.node in self.draining for s in replica.shards)

    def why(self, replica: ReplicaView) -> Reason:
        """One that is not fresh goes."""
        if self.drained(replica):
            away = next(s.node for s in replica.shards if s.node in self.draining)
            return Reason("node_draining", f"{away} is being drained")
        if replica.stale or self.stale(self.models[replica.model], replica):
            return Reason("stale", f"the definition of {replica.model} has changed")
        return Reason("restart", f"{replica.model} is being restarted")
