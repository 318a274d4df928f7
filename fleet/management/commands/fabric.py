"""`llmgw fabric`: what joins the nodes, and what each fabric holds."""

from __future__ import annotations

from typing import Any

from fleet import selectors
from llmgw.cluster.commands import NounCommand, cell, table


class Command(NounCommand):
    help = "Fabrics: NVLink domains, InfiniBand, RoCE and Ethernet that a replica over several nodes may use."
    examples = "  llmgw fabric list\n  llmgw fabric show ib-a"

    def build(self) -> None:
        self.verb("list", selectors.all_fabrics, "every fabric, its nodes, and what keeps others off", show=_list)
        show = self.verb("show", selectors.fabric, "one fabric, with what each node holds", show=_show)
        show.add_argument("name", help="the fabric's name, as `list` shows it")


def _list(found: dict[str, Any]) -> None:
    rows = [
        {
            **f,
            "nodes": [n["node"] for n in f["nodes"]],
            "gpus_used": f"{f['cards_used']} of {f['cards']}",
            "whole_nodes_free": f"{len(f['whole'])} of {len(f['nodes'])}",
            "holds": _held(f),
        }
        for f in found["fabrics"]
    ]
    table(rows, ("fabric", "kind", "nodes", "gpus_used", "whole_nodes_free", "holds", "replicas"))
    for name, heading in (("findings", "look at"), ("off", "off a fabric")):
        if found[name]:
            print(f"\n{heading}:")
            for reason in found[name]:
                print(f"  {reason['sentence']}" + (f"\n    try: {reason['command']}" if reason["command"] else ""))


def _show(found: dict[str, Any]) -> None:
    for name in ("fabric", "kind", "identity", "whole", "replicas"):
        print(f"{name + ':':<16} {cell(found[name])}")
    print(f"{'holds:':<16} {cell(_held(found))}\n")
    table(found["nodes"], ("node", "adapters", "rate_gbps", "gid_index", "gpus", "weights"))


def _held(fabric: dict[str, Any]) -> list[str]:
    """`hf:owner/model on 2 of 4`: weights that lie in one fabric have only the slow network to another."""
    return [f"{source} on {count} of {len(fabric['nodes'])}" for source, count in fabric["weights"].items()]
