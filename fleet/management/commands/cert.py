"""`llmgw cert`: nodes' certificates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleet import selectors
from fleet.actions import certificates
from llmgw.cluster import pki
from llmgw.cluster.commands import NounCommand, actor


class Command(NounCommand):
    help = "Certificates: what a node proves its id with."
    examples = (
        "  llmgw cert list\n"
        "  llmgw cert issue n2 --out ./n2\n"
        "  llmgw cert revoke n2 --reason 'the machine was sold'\n"
        "  llmgw cert revoke 3f9c…"
    )

    def build(self) -> None:
        self.verb("list", selectors.certificates, "every certificate that was issued")
        issue = self.verb("issue", _issue, "a key and certificate for a node: ca.pem, cert.pem, key.pem")
        issue.add_argument("node", help="the node's id")
        issue.add_argument("--out", required=True, metavar="DIR", help="the folder to write them into")
        issue.add_argument("--days", type=int, default=pki.NODE_DAYS, help=f"how long it lasts ({pki.NODE_DAYS})")
        revoke = self.verb("revoke", _revoke, "end a certificate; its node's connection is closed within seconds")
        revoke.add_argument("which", metavar="SERIAL|NODE", help="one serial, or every certificate of a node")
        revoke.add_argument("--reason", default="", help="kept, and told to the refused agent")


def _issue(node: str, out: str, days: int) -> dict[str, Any]:
    issued = certificates.issue(node_id=node, out=Path(out), actor=actor(), days=days)
    return {"node": node, "serial": issued.serial, "expires": issued.not_after, "folder": out}


def _revoke(which: str, reason: str) -> dict[str, Any]:
    return {"revoked": certificates.revoke(which=which, actor=actor(), reason=reason)}
