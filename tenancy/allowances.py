"""What a level or a key allows, with everything above it, as rows for commands, the API and pages."""

from __future__ import annotations

from typing import Any

from llmgw.cluster.actions import settings as cluster_settings
from tenancy.core.limits import from_stored, told, with_defaults
from tenancy.core.terms import TERMS
from tenancy.core.tree import narrow_allow, narrow_days, narrow_flag, narrow_tools
from tenancy.models import Key, Level, Organisation, Project, Team

Holder = Organisation | Team | Project | Key


def of(holder: Level | Key) -> dict[str, Any]:
    """`levels`: what each says, outermost first, the last one is `holder`. `in_force`: what holds for it."""
    path = levels(holder)
    return {"level": name(holder), "levels": [row(level) for level in path], "in_force": _in_force(path)}


def levels(holder: Level | Key) -> tuple[Level | Key, ...]:
    """The organisation first."""
    match holder:
        case Key():
            return (*levels(holder.project), holder)
        case Project():
            return (*levels(holder.team), holder)
        case Team():
            return (holder.organisation, holder)
        case _:
            return (holder,)


def row(holder: Level | Key) -> dict[str, Any]:
    """What it says itself."""
    return {
        "level": name(holder),
        "kind": kind(holder),
        "id": holder.public_id,
        "limits": limits(holder),
        **terms(holder),
    }


def limits(holder: Level | Key) -> dict[str, Any]:
    return told(from_stored(holder.limits))


def terms(holder: Level | Key) -> dict[str, Any]:
    return {term: getattr(holder, term) for term in TERMS[kind(holder)]}


def kind(holder: Level | Key) -> str:
    """organisation | team | project | key."""
    return str(holder._meta.model_name)


def name(holder: Level | Key) -> str:
    return f"key:{holder.prefix}" if isinstance(holder, Key) else holder.path


def _in_force(path: tuple[Level | Key, ...]) -> dict[str, Any]:
    settings = cluster_settings.in_force()
    tree = [level for level in path if isinstance(level, Level)]
    project = next((level for level in tree if isinstance(level, Project)), None)
    key = path[-1] if isinstance(path[-1], Key) else None
    allow = narrow_allow(*(level.allow for level in path))
    found: dict[str, Any] = {
        "allow": None if allow is None else list(allow),
        "tools": [list(patterns) for patterns in narrow_tools(*(level.tools for level in path))],
        "in_cluster": narrow_flag(*(level.in_cluster for level in tree)),
        "no_store": narrow_flag(*(level.no_store for level in tree)),
        "key_ttl_days": narrow_days(settings.keys.max_ttl_days, *(level.key_ttl_days for level in tree)),
        "time_zone": (project.time_zone if project is not None else "") or cluster_settings.time_zone(settings),
    }
    if project is not None:
        kept = not found["no_store"]
        found |= {
            "weight": project.weight,
            "when_spent": project.when_spent,
            "reuse": project.reuse if kept else None,
            "keep": project.keep if kept else None,
        }
    if key is not None:
        defaults = settings.limits
        said = [from_stored(level.limits) for level in tree]
        laid = with_defaults(from_stored(key.limits), defaults.default_rpm, defaults.default_tpm, said)
        found |= {"band": key.band, "limits": told(laid)}
    return found
