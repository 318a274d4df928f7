"""The snapshot's parts from the rows, each in a fixed number of queries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from catalog import selectors as catalog
from fleet import selectors as fleet
from gateway.core import snapshot
from llmgw.cluster.actions import settings as cluster_settings
from tenancy.core.limits import from_stored
from tenancy.core.tree import narrow_allow
from tenancy.models import Key, Level, Person, Project


def tenancy() -> snapshot.Tenancy:
    """Live inference keys by hash, projects with what their levels leave, active people: three queries."""
    projects = {
        p.public_id: snapshot.Scope(
            organisation=p.team.organisation.public_id,
            team=p.team.public_id,
            project=p.public_id,
            allow=narrow_allow(p.team.organisation.allow, p.team.allow, p.allow),
            limits=_levels(organisation=p.team.organisation, team=p.team, project=p),
        )
        for p in Project.objects.select_related("team__organisation").order_by("public_id")
    }
    rows = Key.objects.filter(revoked_at=None, scope=Key.Scope.INFERENCE).select_related("project", "person")
    keys = {
        k.hash: snapshot.KeyEntry(
            id=k.public_id,
            name=k.name,
            project=k.project.public_id,
            person=k.person.public_id if k.person is not None else None,
            expires_at=k.expires_at.timestamp() if k.expires_at is not None else None,
            allow=narrow_allow(k.allow),
            limits=_level("key", k),
        )
        for k in rows.order_by("hash")
        if k.person is None or k.person.is_active
    }
    people = frozenset(Person.objects.filter(is_active=True).values_list("public_id", flat=True))
    return snapshot.Tenancy(keys=keys, projects=projects, people=people)


def _levels(**rows: Level) -> tuple[snapshot.LevelLimits, ...]:
    """Of those that say anything, outermost first."""
    found = (_level(kind, row) for kind, row in rows.items())
    return tuple(level for level in found if level is not None)


def _level(kind: str, row: Level | Key) -> snapshot.LevelLimits | None:
    limits = from_stored(row.limits)
    return snapshot.LevelLimits(kind, row.public_id, limits) if limits else None


def models() -> snapshot.Catalog:
    """Every model that can be read, with the state that the fleet gives it."""
    states = fleet.model_states()
    found = {}
    for entry in catalog.entries():
        definition = entry.definition
        if definition is None:
            continue
        state = states.get(entry.name)
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
            developer_role=bool(definition.developer_role),
        )
    return snapshot.Catalog(models=found)


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
    settings = asdict(cluster_settings.in_force().gateway)
    known = snapshot.Policies.__dataclass_fields__
    return snapshot.Policies(**{name: value for name, value in settings.items() if name in known})


BUILD: dict[str, Callable[[], snapshot.Part]] = {
    "tenancy": tenancy,
    "catalog": models,
    "endpoints": endpoints,
    "policies": policies,
}
DEPENDS: dict[str, tuple[str, ...]] = {
    "tenancy": ("tenancy",),
    "catalog": ("catalog", "endpoints", "fleet"),
    "endpoints": ("endpoints", "fleet", "catalog"),
    "policies": ("policies",),
}
"""Which changes a part is built from."""
