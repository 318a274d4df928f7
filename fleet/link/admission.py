"""Whether a node that said hello is let in: the certificate, the id, the protocol. A join is an admission too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.utils import timezone

from agent.wire.messages import OLDEST, PROTOCOL, Hello, Refused, Settings
from fleet import models
from fleet.bootstrap import store_id
from fleet.core import agents
from fleet.link.protocol import Peer
from fleet.selectors.world import about
from llmgw.cluster.actions import audit
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.changes import announce
from llmgw.cluster.core import settings as core_settings


@dataclass(frozen=True, slots=True)
class Admitted:
    """The node is in; what its `Welcome` says."""

    store_id: str
    settings: Settings
    settings_version: int
    since: datetime
    """`connected_at` in the node's row: tells this connection from the node's next one."""


def _identity(hello: Hello, peer: Peer) -> Refused | None:
    """What can be said without the store."""
    if hello.node_id != peer.common_name:
        return Refused(
            "wrong_node_id",
            f"the certificate is {peer.common_name}'s, and the agent says that it is {hello.node_id}: "
            "set node_id in agent.yaml to the certificate's name, or issue a certificate for this node",
        )
    if hello.protocol < OLDEST:
        return Refused(
            "protocol_too_old",
            f"the agent speaks protocol {hello.protocol}, and this control plane needs {OLDEST} or later: "
            "upgrade the agent",
            retry_s=300,
        )
    if hello.oldest > PROTOCOL:
        return Refused(
            "protocol_too_new",
            f"the agent speaks no protocol before {hello.oldest}, and this control plane speaks {PROTOCOL}: "
            "upgrade the control plane first",
            retry_s=300,
        )
    return None


def admit(asked: Sequence[tuple[Hello, Peer]], link: str) -> list[Admitted | Refused]:
    """Lets each node in, with its rows, or says in one sentence why not; in one transaction."""
    found: list[tuple[models.Node, datetime] | Refused] = []
    with transaction.atomic():
        for hello, peer in asked:
            refused = _identity(hello, peer) or _revoked(peer)
            if refused is not None:
                models.Node.objects.filter(node_id=peer.common_name).update(refused=refused.sentence[:300])
            now = timezone.now()  # each its own: it tells this connection from the node's next one
            found.append(refused or (_let_in(hello, peer, link, now), now))
        if not all(isinstance(f, Refused) for f in found):
            announce("fleet")
    version, document = cluster_settings.current()
    settings, store = core_settings.read(document), store_id()
    known = about([f[0] for f in found if not isinstance(f, Refused)])

    def told(one: tuple[models.Node, datetime] | Refused) -> Admitted | Refused:
        if isinstance(one, Refused):
            return one
        node, since = one
        return Admitted(store, agents.told(settings, node.node_id, known[node.node_id]), version, since)

    return [told(one) for one in found]


def _let_in(hello: Hello, peer: Peer, link: str, now: datetime) -> models.Node:
    models.Certificate.objects.get_or_create(
        serial=peer.serial, defaults={"common_name": peer.common_name, "not_after": peer.not_after}
    )
    node, joined = models.Node.objects.get_or_create(node_id=hello.node_id)
    models.Node.objects.filter(pk=node.pk).update(
        connected=True,
        connected_at=now,
        last_seen=now,
        link=link,
        instance=(hello.instance or "")[:40],
        agent_version=(hello.agent_version or "")[:40],
        protocol=hello.protocol,
        refused="",
    )
    if joined:
        audit.record(actor=f"node {hello.node_id}", action="node.join", subject=hello.node_id, serial=peer.serial)
    return node


def _revoked(peer: Peer) -> Refused | None:
    row = models.Certificate.objects.filter(serial=peer.serial).exclude(revoked_at=None).first()
    if row is None or row.revoked_at is None:
        return None
    why = f": {row.reason}" if row.reason else ""
    return Refused(
        "certificate_revoked",
        f"the certificate {row.serial} of {row.common_name} was revoked on {row.revoked_at:%Y-%m-%d %H:%M} UTC{why}; "
        "join again with a new one",
    )
