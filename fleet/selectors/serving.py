"""What the gateway publishes of the fleet: where replicas answer, and why a model does not."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from django.utils import timezone

from catalog import selectors as catalog
from fleet import models
from fleet.core import scale, starting
from fleet.core import world as core
from fleet.core.replica import State
from fleet.core.states import Copy, ModelState, model_state
from fleet.selectors import learned
from fleet.selectors.hearing import ears
from fleet.selectors.world import facts_of, stamp
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.zones import known

_ANSWERING = (State.READY, State.DRAINING)


@dataclass(frozen=True, slots=True)
class ServingReplica:
    """A replica that answers; the fields are those of the gateway's snapshot."""

    replica: str
    model: str
    host: str
    port: int
    node: str
    engine: str
    draining: bool
    parallel: int
    weight: float


def endpoints() -> list[ServingReplica]:
    """Replicas that are ready or draining, on nodes that are not lost. An agent that is merely away leaves its
    engines serving: the edge notices a dead one by itself."""
    lost = _lost_nodes()
    weights = {(d.name, p.run.name): p.weight for d, _ in catalog.wanted() for p in d.profiles}
    shards = (
        models.Shard.objects.filter(rank=0, replica__state__in=_ANSWERING)
        .select_related("replica", "node")
        .order_by("replica__public_id")
    )
    return [
        ServingReplica(
            replica=s.replica.public_id,
            model=s.replica.model,
            host=s.address or facts_of(s.node).address or "127.0.0.1",
            port=s.port,
            node=s.node.node_id,
            engine=s.replica.spec.get("profile", {}).get("engine", ""),
            draining=s.replica.state == State.DRAINING,
            parallel=s.replica.spec.get("profile", {}).get("parallel", 1),
            weight=weights.get((s.replica.model, s.replica.profile), 1.0),
        )
        for s in shards
        if s.node_id not in lost
    ]


def model_states() -> dict[str, ModelState]:
    """Of every model that runs here: `serving`, or why not and when to come again (`reason`, `retry_after_s`)."""
    now = timezone.now().timestamp()
    settings = cluster_settings.in_force()
    zone = known(cluster_settings.time_zone(settings))
    lost = _lost_nodes()
    placed: dict[int, list[tuple[int, float | None]]] = defaultdict(list)
    for replica_id, node_id, progress in models.Shard.objects.values_list("replica_id", "node_id", "progress"):
        placed[replica_id].append((node_id, progress))
    copies: dict[str, list[Copy]] = defaultdict(list)
    wanted = catalog.wanted()
    shown = learned.shown()
    starts = starting.starts(shown, (definition for definition, _ in wanted))
    fetches = learned.fetches(shown, {definition.name: definition for definition, _ in wanted})
    for r in models.Replica.objects.all():
        copies[r.model].append(
            Copy(
                state=State(r.state),
                heard=not any(node in lost for node, _ in placed[r.pk]),
                reason=r.reason,
                reason_code=r.reason_code,
                next_try_at=stamp(r.next_try_at),
                progress=min((p for _, p in placed[r.pk] if p is not None), default=None),
                placed_at=stamp(r.placed_at),
                fetch_s=fetches.get(r.pk, 0.0),
                held_by=r.held_by,
                free_at=stamp(r.free_at),
            )
        )
    found: dict[str, ModelState] = {}
    for d, stopped in wanted:
        if d.external is None:
            model = core.WantedModel(d, stopped)
            count = scale.count(model, core.Demand(), now, settings.serving, zone=zone, running=False)
            found[d.name] = model_state(d.name, count, copies[d.name], now, starts.get(d.name))
    return found


def standing() -> dict[str, catalog.Serving]:
    """How each model's replicas stand, for the catalog's own lists."""
    ready = Counter(models.Replica.objects.filter(state=State.READY).values_list("model", flat=True))
    return {
        name: catalog.Serving(
            ready=ready[name],
            state=found.state.replace("_", " "),
            reason=found.reason,
            held_by=found.held_by,
            ready_at=found.ready_at,
        )
        for name, found in model_states().items()
    }


def _lost_nodes() -> set[int]:
    now = timezone.now().timestamp()
    lost_s = cluster_settings.in_force().fleet.node_lost_s
    links = ears(now)
    rows = models.Node.objects.values_list("pk", "link", "last_seen")
    return {pk for pk, link, at in rows if links.lost(link=link, last_seen=stamp(at), lost_s=lost_s, now=now)}
