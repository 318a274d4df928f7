"""The snapshot's parts from the rows, each in a fixed number of queries."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict

from catalog import selectors as catalog
from catalog.core.definition import External
from fleet import selectors as fleet
from fleet.core.states import ModelState
from gateway.core import snapshot
from llmgw import zones
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.core.sections import LimitSettings
from llmgw.cluster.core.settings import default_price
from tenancy import allowances
from tenancy.core import periods
from tenancy.core.limits import Limits, Period, from_stored, with_defaults
from tenancy.core.tree import narrow_allow, narrow_flag
from tenancy.models import Key, Level, Person, Project

_STOPPED = "it is stopped; an administrator can start it"

_KEY = (
    *("hash", "public_id", "name", "project_id", "expires_at", "allow", "limits", "band"),
    *("person__public_id", "person__is_active"),
)
"""There may be many keys, and this is read every two seconds: what is not published stays in the store."""


def tenancy(now: float | None = None) -> snapshot.Tenancy:
    """Live inference keys by hash, projects with what their levels leave, active people: four queries. It depends on
    `now` (Unix seconds): a budget's period ends, and the next publishing says so."""
    settings = cluster_settings.in_force()
    clock = Clock(time.time() if now is None else now, cluster_settings.time_zone(settings))
    rows = list(Project.objects.select_related("team__organisation").order_by("public_id"))
    keys = Key.objects.filter(revoked_at=None, scope=Key.Scope.INFERENCE).select_related("person").only(*_KEY)
    scopes = {row.pk: (_scope(row, clock), row.time_zone) for row in rows}
    return snapshot.Tenancy(
        keys={
            key.hash: _key(key, *scopes[key.project_id], settings.limits, clock)
            for key in keys.order_by("hash")
            if (key.person is None or key.person.is_active) and key.project_id in scopes
        },
        projects={row.public_id: scopes[row.pk][0] for row in rows},
        people=frozenset(Person.objects.filter(is_active=True).values_list("public_id", flat=True)),
        chat_limits=_chat_limits(settings.limits),
    )


def chat_limits() -> Limits:
    """Of a person who chats without a key, over all projects."""
    return _chat_limits(cluster_settings.in_force().limits)


def _chat_limits(defaults: LimitSettings) -> Limits:
    return with_defaults(Limits(), defaults.default_rpm, defaults.default_tpm, ())


class Clock:
    """Which period is running, worked out once for each time zone."""

    def __init__(self, now: float, cluster: str) -> None:
        self._now = now
        self._cluster = cluster
        self._known: dict[tuple[Period, str], periods.Running] = {}

    def running(self, period: Period, zone: str = "") -> periods.Running:
        """By the cluster's clock where `zone` is empty, or one that this machine does not know."""
        asked = (period, zone or self._cluster)
        if asked not in self._known:
            self._known[asked] = periods.running(period, zones.known(asked[1], self._cluster), self._now)
        return self._known[asked]


def _scope(row: Project, clock: Clock) -> snapshot.Scope:
    team, organisation = row.team, row.team.organisation
    levels = (organisation, team, row)
    no_store = narrow_flag(*(level.no_store for level in levels))
    limits = (_level("organisation", organisation, clock), _level("team", team, clock))
    own = _level("project", row, clock, row.time_zone)
    return snapshot.Scope(
        organisation=organisation.public_id,
        team=team.public_id,
        project=row.public_id,
        allow=narrow_allow(*(level.allow for level in levels)),
        limits=tuple(level for level in (*limits, own) if level is not None),
        in_cluster=narrow_flag(*(level.in_cluster for level in levels)),
        no_store=no_store,
        weight=row.weight,
        when_spent=row.when_spent,
        # Neither is in force where nothing may be kept, whoever asks.
        reuse=_reuse(row) if row.reuse and not no_store else None,
        keep=snapshot.Keep(**row.keep) if row.keep and not no_store else None,
    )


def _reuse(row: Project) -> snapshot.Reuse:
    since = row.reuse_since.timestamp() if row.reuse_since is not None else 0.0
    return snapshot.Reuse(**(row.reuse or {}), since=since)


def _key(row: Key, scope: snapshot.Scope, zone: str, defaults: LimitSettings, clock: Clock) -> snapshot.KeyEntry:
    return snapshot.KeyEntry(
        id=row.public_id,
        name=row.name,
        project=scope.project,
        person=row.person.public_id if row.person is not None else None,
        expires_at=row.expires_at.timestamp() if row.expires_at is not None else None,
        allow=narrow_allow(row.allow),
        limits=_key_limits(row, (level.limits for level in scope.limits), zone, defaults, clock),
        band=row.band,
    )


def bounds(holders: Iterable[Level | Key], now: float | None = None) -> dict[str, snapshot.LevelLimits]:
    """What binds each of `holders` by itself, by its public id; who says nothing is left out. One query: rows come
    with what is above them."""
    settings = cluster_settings.in_force()
    clock = Clock(time.time() if now is None else now, cluster_settings.time_zone(settings))
    found = (_bound(holder, settings.limits, clock) for holder in holders)
    return {one.id: one for one in found if one is not None}


def _bound(holder: Level | Key, defaults: LimitSettings, clock: Clock) -> snapshot.LevelLimits | None:
    if isinstance(holder, Key):
        tree = allowances.levels(holder.project)
        said = (from_stored(level.limits) for level in tree)
        return _key_limits(holder, said, holder.project.time_zone, defaults, clock)
    return _level(allowances.kind(holder), holder, clock, holder.time_zone if isinstance(holder, Project) else "")


def _key_limits(
    row: Key, tree: Iterable[Limits], zone: str, defaults: LimitSettings, clock: Clock
) -> snapshot.LevelLimits | None:
    limits = with_defaults(from_stored(row.limits), defaults.default_rpm, defaults.default_tpm, tree)
    return _said("key", row.public_id, limits, clock, zone)


def _level(kind: str, row: Level, clock: Clock, zone: str = "") -> snapshot.LevelLimits | None:
    return _said(kind, row.public_id, from_stored(row.limits), clock, zone)


def _said(kind: str, id: str, limits: Limits, clock: Clock, zone: str) -> snapshot.LevelLimits | None:
    """None where the level says nothing."""
    if not limits:
        return None
    if limits.budget is None:
        return snapshot.LevelLimits(kind, id, limits)
    period = clock.running(limits.period, zone)
    return snapshot.LevelLimits(kind, id, limits, period.name, period.until, period.since)


def models() -> snapshot.Catalog:
    """Every model that can be read, with the state that the fleet gives it."""
    states, starts = fleet.model_states(), fleet.starts()
    found = {}
    for entry in catalog.entries():
        definition = entry.definition
        if definition is None:
            continue
        state, external = states.get(entry.name), definition.external
        if external is not None:
            state = ModelState("stopped", _STOPPED, 60) if entry.stopped else ModelState("serving")
        found[entry.name] = snapshot.ModelEntry(
            name=entry.name,
            aliases=tuple(definition.aliases),
            state=state.state if state is not None else "stopped" if entry.stopped else "loading",
            reason=state.reason if state is not None else "",
            retry_after_s=max(1, state.retry_after_s) if state is not None else 5,
            kinds=tuple(definition.kinds),
            context_length=definition.context_length,
            max_output=definition.max_output,
            created=int(entry.created_at.timestamp()) if entry.created_at is not None else 0,
            vision=definition.vision,
            prices=entry.prices,
            slo=snapshot.Slo(slo.ttft_p99_s, slo.tpot_p99_s) if (slo := definition.slo) is not None else None,
            developer_role=external is not None if definition.developer_role is None else definition.developer_role,
            fallbacks=tuple(definition.fallbacks),
            external=_external(external) if external is not None else None,
            on_demand=external is None and definition.scaling.min == 0 < definition.scaling.max,
            ready_at=state.ready_at if state is not None else None,
            start_s=round(took, 1) if (took := starts.get(entry.name)) is not None else None,
            held_by=state.held_by if state is not None else "",
        )
    return snapshot.Catalog(models=found)


def _external(found: External) -> snapshot.External:
    keys = tuple(snapshot.ExternalKey(key.file, key.weight) for key in found.keys)
    return snapshot.External(found.url, found.model, keys)


def endpoints() -> snapshot.Endpoints:
    return snapshot.Endpoints(
        endpoints=tuple(
            snapshot.Endpoint(
                replica=e.replica,
                model=e.model,
                host=e.host,
                port=e.port,
                node=e.node,
                engine=e.engine,
                draining=e.draining,
                weight=e.weight,
                parallel=e.parallel,
            )
            for e in fleet.endpoints()
        )
    )


def policies() -> snapshot.Policies:
    in_force = cluster_settings.in_force()
    known = snapshot.Policies.__dataclass_fields__
    of_gateway = {name: value for name, value in asdict(in_force.gateway).items() if name in known}
    return snapshot.Policies(
        **of_gateway,
        tag_labels=tuple(in_force.usage.tag_labels),
        default_price=default_price(in_force),
        cache=snapshot.CachePolicy(**asdict(in_force.cache)),
        stopped=in_force.serving.stopped,
        stopped_note=in_force.serving.note,
    )


BUILD: dict[str, Callable[[], snapshot.Part]] = {
    "tenancy": tenancy,
    "catalog": models,
    "endpoints": endpoints,
    "policies": policies,
}
DEPENDS: dict[str, tuple[str, ...]] = {
    "tenancy": ("tenancy", "policies"),
    "catalog": ("catalog", "endpoints", "fleet", "policies"),
    "endpoints": ("endpoints", "fleet", "catalog"),
    "policies": ("policies",),
}
"""Which changes a part is built from."""
