"""What a person may use, read from several apps."""

from __future__ import annotations

from fleet import selectors as fleet_selectors
from llmgw.portal import fleet
from tenancy import access
from tenancy.core.tree import allows, narrow_allow
from tenancy.models import Person


def models_for(person: Person) -> list[fleet.Row]:
    """Every model that one of the person's projects may use, with its state."""
    found = fleet.models(fleet_selectors.replicas())
    if person.is_superuser:
        return found
    allowed = [narrow_allow(p.team.organisation.allow, p.team.allow, p.allow) for p in access.projects_for(person)]
    return [m for m in found if any(allows(a, m["name"]) for a in allowed)]
