"""Why a request went as it did."""

from __future__ import annotations

from agent.wire.reason import Reason
from gateway import selectors
from gateway.core import telling
from tenancy.models import Key, Person, Project


def request(ref: str, model: str | None = None) -> tuple[Reason, ...]:
    """What became of it, and why; raises `NotFound`."""
    found = selectors.request(ref)
    key = Key.objects.filter(public_id=found["key"]).first() if found["key"] else None
    project = Project.objects.select_related("team__organisation").filter(public_id=found["project"]).first()
    person = Person.objects.filter(public_id=found["person"]).first() if found["person"] else None
    names = {
        "key_name": f"{key.name} ({key.prefix}…)" if key is not None else "",
        "project_path": project.path if project is not None else "",
        "person_email": person.email if person is not None else "",
    }
    return telling.tell(telling.told({**found, **names}))
