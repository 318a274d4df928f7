"""The tree's part of `/api/v1`."""

from __future__ import annotations

from tenancy.api.keys import Keys
from tenancy.api.people import People
from tenancy.api.tree import Organisations, Projects, Teams

routes = [
    ("organisations", Organisations, "organisation"),
    ("teams", Teams, "team"),
    ("projects", Projects, "project"),
    ("people", People, "person"),
    ("keys", Keys, "key"),
]
