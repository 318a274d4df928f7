"""A model out of the catalog with its files: nodes delete what they fetched, once its replicas have stopped."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import transaction
from django.db.models import F

from catalog import selectors as catalog
from catalog.actions import models as actions
from fleet import models, nudges
from fleet.selectors.world import facts_of
from llmgw.cluster.changes import announce


@dataclass(frozen=True, slots=True)
class Purged:
    """`deleted`: sources whose weights go, from `nodes` as far as they have told; `kept`: what another model uses."""

    name: str
    deleted: tuple[str, ...]
    kept: tuple[str, ...]
    nodes: tuple[str, ...]


def remove(*, name: str, actor: str, force: bool = False) -> Purged:
    """A node that is away deletes its copies when it is back."""
    found = catalog.entry(name)
    gone, kept = actions.purged(found)
    with transaction.atomic():
        removed = actions.remove(name=found.name, actor=actor, force=force, purge=True)
        models.Node.objects.update(generation=F("generation") + 1)
        announce("fleet")
    nodes = list(models.Node.objects.all())
    nudges.link(n.node_id for n in nodes)
    have = [n.node_id for n in nodes if set(gone) & set(facts_of(n).weights or ())]
    return Purged(removed, tuple(gone), tuple(kept), tuple(have))
