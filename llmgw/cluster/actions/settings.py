"""Saving, reading and rolling back the cluster's settings: every save is a new revision."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from django.conf import settings as django_settings
from django.db import IntegrityError, transaction

from agent.wire.reason import Reason
from llmgw.cluster import look
from llmgw.cluster.actions import audit
from llmgw.cluster.changes import announce
from llmgw.cluster.core import settings as core
from llmgw.cluster.core.sections import BadSettings
from llmgw.cluster.errors import Conflict, Invalid, NotFound
from llmgw.cluster.models import SettingsRevision

PARTS = ("policies", "tenancy", "catalog", "fleet")
"""What is built from the settings."""
Check = Callable[[core.ClusterSettings], Iterable[Reason]]
_checks: list[Check] = []


def check_with(check: Check) -> None:
    """Registers who says what is wrong with a part that this app does not know (declared models); called from an
    app's `ready()`."""
    if check not in _checks:
        _checks.append(check)


def current() -> tuple[int, dict[str, Any]]:
    """(version, document); version 0 and {} before the first save."""
    row = SettingsRevision.objects.first()
    return (row.version, row.document) if row else (0, {})


def in_force() -> core.ClusterSettings:
    """As they are read; in a request, as it read them first."""
    return look.once(lambda: core.read(current()[1]))


def time_zone(settings: core.ClusterSettings) -> str:
    """By whose clock days begin where nobody says otherwise: the cluster's, else the portal's."""
    return settings.time_zone or django_settings.TIME_ZONE


def save(*, document: dict[str, Any], base: int, actor: str, note: str = "") -> SettingsRevision:
    """The document as a new revision; `Conflict` when `base` is no longer the newest, `Invalid` when it is bad."""
    document = msgspec.to_builtins(document)  # YAML makes dates of dates, and a row holds JSON
    try:
        settings = core.read(document)
    except BadSettings as e:
        raise Invalid("bad_settings", str(e)) from None
    problems = tuple(problem for check in _checks for problem in check(settings))
    if problems:
        raise Invalid.several(problems)
    try:
        with transaction.atomic():
            version, _ = current()
            if version != base:
                raise Conflict(
                    "stale_settings",
                    f"this change was made from version {base}, and version {version} is in force: "
                    "read it and try again",
                    "llmgw config history",
                )
            row = SettingsRevision.objects.create(version=base + 1, document=document, note=note, actor=actor)
            audit.record(actor=actor, action="settings.save", subject=f"version {row.version}", note=note)
            announce(*PARTS)
            look.changed()
            return row
    except IntegrityError:
        raise Conflict("stale_settings", f"version {base + 1} was saved by somebody else just now") from None


def put(*, path: str, value: Any, actor: str, note: str = "") -> SettingsRevision:
    """One value changed in the newest revision."""
    version, document = current()
    try:
        changed = core.put(document, path, value)
    except BadSettings as e:
        raise Invalid("bad_settings", str(e)) from None
    return save(document=changed, base=version, actor=actor, note=note or f"set {path}")


def rollback(*, version: int, actor: str) -> SettingsRevision:
    """An earlier version's document as a new revision."""
    row = SettingsRevision.objects.filter(version=version).first()
    if row is None:
        raise NotFound("no_such_version", f"there is no version {version}", "llmgw config history")
    return save(document=row.document, base=current()[0], actor=actor, note=f"back to version {version}")
