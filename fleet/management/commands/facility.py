"""`llmgw facility`: racks, rows, rooms, sites and PDUs, what they draw, and what may be placed there."""

from __future__ import annotations

from typing import Any

from fleet import selectors
from fleet.actions import places
from fleet.core.facility import KINDS, kw
from llmgw.cluster.commands import NounCommand, actor, table
from llmgw.cluster.errors import Invalid


class Command(NounCommand):
    help = (
        "The facility: racks, rows, rooms, sites and PDUs, by the nodes' labels llmgw.io/rack, row, room, site and pdu."
    )
    examples = (
        "  llmgw facility\n"
        "  llmgw facility hold rack r12-07 --note 'new cooling on Friday'\n"
        "  llmgw facility release rack r12-07\n"
        "  llmgw facility cap rack r12-07 17000\n"
        "  llmgw facility cap pdu r12-07-a none"
    )

    def run_from_argv(self, argv: list[str]) -> None:
        """Without a verb it lists."""
        bare = len(argv) == 2 or argv[2] == "--json"
        super().run_from_argv([*argv[:2], "list", *argv[2:]] if bare else argv)

    def build(self) -> None:
        self.verb("list", selectors.places, "every rack, row, room, site and PDU", show=_list)
        hold = self._named("hold", _hold, "place nothing new there; what runs goes on")
        hold.add_argument("--note", default="", help="why")
        self._named("release", _release, "place replicas there again")
        cap = self._named("cap", _cap, "what its nodes together may come to draw")
        cap.add_argument("watts", help="watts, or none")

    def _named(self, name: str, run: Any, help: str) -> Any:
        verb = self.verb(name, run, help, show=lambda found: _list([found]))
        verb.add_argument("kind", choices=KINDS)
        verb.add_argument("name", help="as the nodes are labelled")
        return verb


def _list(rows: list[dict[str, Any]]) -> None:
    table(
        [
            {
                **r,
                "nodes": len(r["nodes"]),
                "draws": None if r["draws_w"] is None else kw(r["draws_w"]),
                "may_draw": kw(r["may_draw_w"]),
                "cap": None if r["power_cap_w"] is None else kw(r["power_cap_w"]),
                "held": f"held{': ' + r['note'] if r['note'] else ''}" if r["held"] else None,
            }
            for r in rows
        ],
        ("kind", "name", "within", "nodes", "draws", "may_draw", "cap", "held", "models"),
    )


def _hold(kind: str, name: str, note: str) -> dict[str, Any]:
    return places.hold(kind=kind, name=name, note=note, actor=actor())


def _release(kind: str, name: str) -> dict[str, Any]:
    return places.release(kind=kind, name=name, actor=actor())


def _cap(kind: str, name: str, watts: str) -> dict[str, Any]:
    if watts != "none" and not watts.isdigit():
        raise Invalid("bad_cap", f"a power cap is a number of watts, or none, and not {watts!r}")
    return places.cap(kind=kind, name=name, watts=None if watts == "none" else int(watts), actor=actor())
