"""What people do with nodes: cordon, drain, label, settle, remove."""

from __future__ import annotations

import re

from django.db import transaction
from django.db.models import F

from agent.plans import INSTALLABLE, build_problem
from agent.plans.outcome import AUTO, NONE
from fleet import events, models, nudges
from fleet.actions import certificates
from fleet.core.replica import PLACED
from llmgw.cluster.actions import audit
from llmgw.cluster.changes import announce
from llmgw.cluster.errors import Conflict, Invalid, NotFound

_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/,-]{0,61}[A-Za-z0-9])?")
"""Several PDUs are one value: `a,b`."""


def cordon(*, node_id: str, actor: str) -> None:
    """Nothing new is placed there; what runs goes on."""
    _mark(node_id, "node.cordon", actor, cordoned=True)


def drain(*, node_id: str, actor: str) -> None:
    """Cordoned, and what runs there moves elsewhere: new before old where there is room."""
    _mark(node_id, "node.drain", actor, cordoned=True, draining=True)


def uncordon(*, node_id: str, actor: str) -> None:
    """It takes replicas again; a drain is over too."""
    _mark(node_id, "node.uncordon", actor, cordoned=False, draining=False)


def label(*, node_id: str, changes: dict[str, str | None], actor: str) -> dict[str, str]:
    """Stored labels set, or taken away by None; all of them as they are then. They win over the agent's own."""
    for name, value in changes.items():
        if not _LABEL.fullmatch(name) or not (value is None or value == "" or _VALUE.fullmatch(value)):
            raise Invalid(
                "bad_label",
                f"a label is name=value of letters, digits and . - / _ (commas between values), not {name}={value}",
            )
    with transaction.atomic():
        node = _locked(node_id)
        kept = {k: v for k, v in node.labels.items() if changes.get(k, "") is not None}
        node.labels = {**kept, **{k: v for k, v in changes.items() if v is not None}}
        node.generation += 1  # its engines may be others now, and so it is told its settings again
        node.save(update_fields=["labels", "generation"])
        audit.record(actor=actor, action="node.label", subject=node_id, **{"labels": node.labels})
        announce("fleet")
    nudges.link([node_id])
    return dict(node.labels)


def engine_build(*, node_id: str, engine: str, build: str, actor: str) -> dict[str, str]:
    """Chooses which build of an engine the node installs: `auto` (what its hardware runs), `none`, or one by name.
    The node is told at once, and installs it while its engines serve. All that is chosen for it then."""
    known = INSTALLABLE.get(engine)
    if known is None:
        names = ", ".join(INSTALLABLE)
        raise Invalid("not_installable", f"nodes install {names}, and not {engine}: name it in the node's agent.yaml")
    if build not in (AUTO, NONE, *known.builds):
        raise Invalid.several((build_problem(engine, build),))
    with transaction.atomic():
        node = _locked(node_id)
        if node.facts.get("installs") is False and build != AUTO:
            raise Conflict(
                "installs_off",
                f"{node_id} installs no engines: its agent.yaml says engines: {{install: false}}; set it to true there",
            )
        chosen = {k: v for k, v in node.engine_builds.items() if k != engine}
        if build != AUTO:
            chosen[engine] = build
        if chosen == node.engine_builds:
            return chosen
        node.engine_builds = chosen
        node.generation += 1  # moves, so that the link looks at what it is told
        node.save(update_fields=["engine_builds", "generation"])
        audit.record(actor=actor, action="node.engine_build", subject=node_id, engine=engine, build=build)
        announce("fleet")
    nudges.link([node_id])
    return chosen


def settle(*, node_id: str, actor: str) -> int:
    """Gives up the engines there that another store ordered: the node may end them. How many there were."""
    with transaction.atomic():
        node = _locked(node_id)
        count = node.strays.filter(dismissed=False).update(dismissed=True)
        models.Node.objects.filter(pk=node.pk).update(settled=True, generation=F("generation") + 1)
        audit.record(actor=actor, action="node.settle", subject=node_id, engines=count)
        announce("fleet")
    nudges.link([node_id])
    return count


def remove(*, node_id: str, actor: str, force: bool = False) -> list[str]:
    """The node, its certificates and its replicas' rows; the serials that were revoked. Its agent is refused from
    now on. Refused while engines run there, unless forced: they would run on with nobody watching."""
    with transaction.atomic():
        events.serialise()
        node = _locked(node_id)
        running = models.Replica.objects.filter(shards__node=node, state__in=PLACED).count()
        if running and not force:
            raise Conflict(
                "node_in_use",
                f"{node_id} still runs {running} replica{'s' if running > 1 else ''}: drain it first",
                f"llmgw node drain {node_id}",
            )
        others = models.Node.objects.filter(shards__replica__shards__node=node).exclude(pk=node.pk).distinct()
        touched = list(others.values_list("node_id", flat=True))
        for replica in models.Replica.objects.filter(shards__node=node).distinct():
            replica.reason = f"its node {node_id} was removed"
            events.end(replica)
        models.Node.objects.filter(node_id__in=touched).update(generation=F("generation") + 1)
        valid = models.Certificate.objects.filter(common_name=node_id, revoked_at=None)
        serials = list(valid.values_list("serial", flat=True))
        node.delete()
        audit.record(actor=actor, action="node.remove", subject=node_id, forced=force)
        announce("fleet", "endpoints")
        if serials:
            certificates.revoke(which=node_id, actor=actor, reason="the node was removed")
    nudges.link([node_id, *touched])
    return serials


def _mark(node_id: str, action: str, actor: str, **changes: bool) -> None:
    with transaction.atomic():
        node = _locked(node_id)
        if all(getattr(node, k) == v for k, v in changes.items()):
            return
        models.Node.objects.filter(pk=node.pk).update(**changes)
        audit.record(actor=actor, action=action, subject=node_id)
        announce("fleet")


def _locked(node_id: str) -> models.Node:
    node = models.Node.objects.select_for_update().filter(node_id=node_id).first()
    if node is None:
        raise NotFound("no_such_node", f"there is no node {node_id}", "llmgw node list")
    return node
