"""Changes of what a level or a key allows: its limits, and its terms (`tenancy.core.terms`)."""

from __future__ import annotations

from typing import Any, TypeVar

from django.db import transaction

from llmgw.cluster.actions import audit
from llmgw.cluster.changes import announce
from llmgw.cluster.errors import Invalid
from tenancy.core import limits as core
from tenancy.core import terms as core_terms
from tenancy.models import Key, Level

L = TypeVar("L", bound=Level | Key)


def change(*, level: L, actor: str, limits: dict[str, Any] | None = None, terms: dict[str, Any] | None = None) -> L:
    """`limits` (figures by their names, the budget as a decimal, None takes back) and `terms` (names of
    `tenancy.core.terms`) laid over what `level` says; in force at every edge within two seconds. `Invalid` names
    everything that is wrong.

    Whether the actor may do this is asked before, by `tenancy.access`.
    """
    kind = str(level._meta.model_name)
    with transaction.atomic():
        row = type(level)._default_manager.select_for_update().get(pk=level.pk)
        before = _told(row)
        laid, bad_limits = core.laid(core.from_stored(row.limits), limits or {})
        said, bad_terms = core_terms.cleaned(kind, terms or {})
        problems = (*bad_limits, *bad_terms)
        if problems:
            raise Invalid.several(problems)
        row.limits = core.stored(laid)
        for name, value in said.items():
            setattr(row, name, value)
        after = _told(row)
        changed = {name: [before[name], after[name]] for name in after if before[name] != after[name]}
        if changed:
            row.save(update_fields=["limits", *said])
            audit.record(actor=actor, action=f"{kind}.limits", subject=_subject(row), **changed)
            announce("tenancy")
    for name in ("limits", *said):
        setattr(level, name, getattr(row, name))
    return level


def _told(row: Level | Key) -> dict[str, Any]:
    """What an audit row compares."""
    names = core_terms.TERMS[str(row._meta.model_name)]
    return {"limits": dict(row.limits), **{name: getattr(row, name) for name in names}}


def _subject(row: Level | Key) -> str:
    return row.public_id if isinstance(row, Key) else row.path
