"""The menu: which pages there are, in which group, and who may see them."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from tenancy.models import Person

Text = str | Promise


@dataclass(frozen=True, slots=True)
class Page:
    """`name` is the address's name in `portal:`; `section` marks it as current for the pages below it."""

    name: str
    label: Text
    icon: str
    section: str


@dataclass(frozen=True, slots=True)
class Group:
    label: Text
    pages: tuple[Page, ...]
    administrators: bool = True


GROUPS = (
    Group(
        _("Use"),
        (
            Page("landing", _("Home"), "home", "landing"),
            Page("chat", _("Chat"), "chat", "chat"),
            Page("account", _("Keys"), "key", "account"),
            Page("usage", _("My usage"), "chart", "usage"),
            Page("profile", _("Profile"), "person", "profile"),
        ),
        administrators=False,
    ),
    Group(
        _("Serve"),
        (
            Page("cluster", _("Overview"), "pulse", "cluster"),
            Page("models", _("Models"), "box", "models"),
            Page("replicas", _("Replicas"), "layers", "replicas"),
        ),
    ),
    Group(
        _("Machines"),
        (
            Page("nodes", _("Nodes"), "server", "nodes"),
            Page("gpus", _("GPU map"), "grid", "gpus"),
            Page("fabrics", _("Fabrics and NVLink"), "links", "fabrics"),
            Page("facility", _("Facility"), "racks", "facility"),
        ),
    ),
    Group(
        _("Traffic"),
        (
            Page("requests", _("Requests"), "arrows", "requests"),
            Page("cache", _("Cache"), "again", "cache"),
        ),
    ),
    Group(
        _("People"),
        (
            Page("tenants", _("Tenants"), "tree", "tenants"),
            Page("people", _("Accounts"), "people", "people"),
            Page("audit", _("Audit"), "list", "audit"),
        ),
    ),
    Group(
        _("Cluster"),
        (
            Page("notices", _("Notices"), "bell", "notices"),
            Page("settings", _("Settings"), "sliders", "settings"),
            Page("whatif", _("What if"), "fork", "whatif"),
        ),
    ),
)


def for_person(person: object) -> tuple[Group, ...]:
    """The groups that this visitor may open; nothing for a stranger."""
    if not isinstance(person, Person):
        return ()
    return tuple(g for g in GROUPS if person.is_superuser or not g.administrators)
