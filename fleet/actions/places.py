"""What people do with racks, rows, rooms, sites and PDUs: hold, release, cap. Kept in the settings, in `facility`."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from fleet import selectors
from llmgw.cluster.actions import audit
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.errors import Invalid


def hold(*, kind: str, name: str, actor: str, note: str = "") -> dict[str, Any]:
    """Nothing new is placed there; what runs goes on."""
    return _put(kind, name, actor, "facility.hold", {"held": True, "note": note})


def release(*, kind: str, name: str, actor: str) -> dict[str, Any]:
    """It takes replicas again."""
    return _put(kind, name, actor, "facility.release", {"held": None, "note": None})


def cap(*, kind: str, name: str, watts: int | None, actor: str) -> dict[str, Any]:
    """Its nodes together may come to draw `watts`; None: there is no cap. What runs goes on."""
    if watts is not None and watts < 1:
        raise Invalid("bad_cap", f"a power cap is a number of watts from 1 on, and not {watts}")
    return _put(kind, name, actor, "facility.cap", {"power_cap_w": watts})


def _put(kind: str, name: str, actor: str, action: str, changes: dict[str, Any]) -> dict[str, Any]:
    """None takes a value back to its default."""
    selectors.place(kind, name)
    with transaction.atomic():
        version, document = cluster_settings.current()
        section = dict(document.get("facility", {}))
        places = dict(section.get(f"{kind}s", {}))
        said = {**places.get(name, {}), **changes}
        places[name] = {k: v for k, v in said.items() if v is not None}
        if not places[name]:
            del places[name]
        section[f"{kind}s"] = places
        note = f"{action.removeprefix('facility.')} {kind} {name}"
        cluster_settings.save(document={**document, "facility": section}, base=version, actor=actor, note=note)
        audit.record(actor=actor, action=action, subject=f"{kind} {name}", **changes)
    return selectors.place(kind, name)
