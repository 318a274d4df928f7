"""`llmgw audit`: who changed what."""

from __future__ import annotations

from llmgw.cluster import selectors
from llmgw.cluster.commands import NounCommand


class Command(NounCommand):
    help = "The audit log: every change, with who made it."
    examples = (
        "  llmgw audit list\n  llmgw audit list --action node. --limit 20\n  llmgw audit list --subject n1 --json"
    )

    def build(self) -> None:
        listing = self.verb("list", selectors.audit, "the newest entries")
        listing.add_argument("--limit", type=int, default=50, help="how many (50)")
        listing.add_argument("--actor", help="whose name holds this")
        listing.add_argument("--action", help="whose action begins with this, like node. or key.create")
        listing.add_argument("--subject", help="about exactly this")
