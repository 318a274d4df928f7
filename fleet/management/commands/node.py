"""`llmgw node`: the machines."""

from __future__ import annotations

import sys
from typing import Any

from fleet import logs, selectors
from fleet.actions import joining, nodes
from fleet.core.facility import location
from fleet.core.sizes import gib
from llmgw.cluster.commands import NounCommand, actor, cell, table
from llmgw.cluster.errors import Invalid

_SHOWN = {f"llmgw.io/{name}" for name in ("rack", "row", "room", "site", "pdu")}
"""Labels that LOCATION shows."""


class Command(NounCommand):
    help = "Nodes: the machines that run engines."
    examples = (
        "  llmgw node list\n"
        "  llmgw node list --domain rack:r12-07\n"
        "  llmgw node show n1\n"
        "  llmgw node join-code n2\n"
        "  llmgw node label n1 rack=a site-\n"
        "  llmgw node drain n1\n"
        "  llmgw node logs n1 -n 50\n"
        "  llmgw node remove n1"
    )

    def build(self) -> None:
        listing = self.verb("list", _nodes, "every node", show=_list, watch=True)
        listing.add_argument("--domain", default="", metavar="KIND:NAME", help="of one rack, row, room, site or pdu")
        self._named("show", _show, "one node in full", show=_shown)
        tail = self._named("logs", _logs, "the newest lines of its agent's log", show=_lines)
        tail.add_argument("-n", "--lines", type=int, default=100, help="how many (100)")
        self._named("cordon", _cordon, "place nothing new there; what runs goes on")
        self._named("uncordon", _uncordon, "place replicas there again")
        self._named("drain", _drain, "cordon it, and move what runs there elsewhere")
        remove = self._named("remove", _remove, "forget the node and revoke its certificates")
        remove.add_argument("--force", action="store_true", help="although engines run there: they run on, unwatched")
        label = self._named("label", _label, "set labels (name=value) or take them away (name-)")
        label.add_argument("labels", nargs="+", metavar="LABEL", help="name=value, or name- to take it away")
        self._named("settle", _settle, "let it end engines that another store ordered")
        code = self.verb("join-code", _join_code, "a code with which a machine joins by itself", show=_code)
        code.add_argument("node", nargs="?", default="", help="the node's id; without it the machine chooses")
        code.add_argument("--portal", default="", metavar="URL", help="where the machine reaches this portal")

    def _named(self, name: str, run: Any, help: str, show: Any = None) -> Any:
        verb = self.verb(name, run, help, show=show)
        verb.add_argument("node", help="the node's id")
        return verb


def _nodes(domain: str) -> list[dict[str, Any]]:
    kind, colon, name = domain.partition(":")
    if domain and (not colon or kind not in ("rack", "row", "room", "site", "pdu")):
        raise Invalid("bad_domain", f"a domain is rack:NAME, row:NAME, room:NAME, site:NAME or pdu:NAME, not {domain}")
    return [r for r in selectors.nodes() if not domain or location(r["labels"]).within(kind, name)]


def _list(rows: list[dict[str, Any]]) -> None:
    table(
        [
            {
                "node": r["node"],
                "state": r["state"],
                "location": r["location"] + (f" ({', '.join(r['pdus'])})" if r["pdus"] else ""),
                "address": r["address"],
                "replicas": f"{r['ready']}/{r['replicas']}",
                "cpu": _of(r["cpu_reserved"], r["cpu_count"]),
                "memory": _of(gib(r["memory_reserved_bytes"]), _size(r["memory_bytes"])),
                "gpus": r["gpus"],
                "engines": r["engines"],
                "labels": {k: v for k, v in r["labels"].items() if k not in _SHOWN},
                "reason": r["reason"],
            }
            for r in rows
        ]
    )


def _show(node: str) -> dict[str, Any]:
    return selectors.node(node)


def _shown(found: dict[str, Any]) -> None:
    nested = ("running", "strays", "engine_details", "gpu_details", "rdma_ports")
    for name, value in found.items():
        if name not in nested:
            shown = _size(value) if name.endswith("_bytes") else value
            print(f"{name.removesuffix('_bytes').replace('_', ' ') + ':':<20} {cell(shown)}")
    for name, heading, columns in (
        ("engine_details", "engines", ("name", "version", "build", "state", "chosen", "problem")),
        ("gpu_details", "GPUs", ("device", "name", "gpu_class", "temperature_c", "pcie", "numa_node", "problem")),
        ("rdma_ports", "RDMA ports", ("port", "kind", "active", "rate_gbps", "netdev", "gid_index", "subnet_manager")),
        ("running", "replicas", ("replica", "model", "profile", "state", "port", "reason")),
        ("strays", "engines that no replica describes", ("shard", "model", "state", "foreign")),
    ):
        if found[name]:
            print(f"\n{heading}:")
            table(found[name], columns)


def _logs(node: str, lines: int) -> dict[str, Any]:
    return {"node": node, "lines": logs.of_agent(node, lines)}


def _lines(found: dict[str, Any]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in found["lines"]))


def _cordon(node: str) -> dict[str, Any]:
    nodes.cordon(node_id=node, actor=actor())
    return {"node": node, "cordoned": True}


def _uncordon(node: str) -> dict[str, Any]:
    nodes.uncordon(node_id=node, actor=actor())
    return {"node": node, "cordoned": False, "draining": False}


def _drain(node: str) -> dict[str, Any]:
    nodes.drain(node_id=node, actor=actor())
    return {"node": node, "cordoned": True, "draining": True, "replicas": selectors.node(node)["replicas"]}


def _remove(node: str, force: bool) -> dict[str, Any]:
    return {"node": node, "revoked": nodes.remove(node_id=node, actor=actor(), force=force)}


def _label(node: str, labels: list[str]) -> dict[str, Any]:
    changes: dict[str, str | None] = {}
    for text in labels:
        name, equals, value = text.partition("=")
        if equals:
            changes[name] = value
        elif text.endswith("-"):
            changes[text[:-1]] = None
        else:
            raise Invalid("bad_label", f"a label is name=value, or name- to take it away, and not {text!r}")
    return {"node": node, "labels": nodes.label(node_id=node, changes=changes, actor=actor())}


def _settle(node: str) -> dict[str, Any]:
    return {"node": node, "given_up": nodes.settle(node_id=node, actor=actor())}


def _join_code(node: str, portal: str) -> dict[str, Any]:
    made = joining.make(node_id=node, portal=portal, actor=actor())
    return {"code": made.code, "node": made.node_id, "expires": made.expires_at}


def _code(found: dict[str, Any]) -> None:
    print("On the machine that joins, within the hour:\n")
    print(f"  llmgw-agent join {found['code']} --home /var/lib/llmgw-agent\n")
    print("The code is shown once and works once.")


def _of(part: Any, whole: Any) -> str:
    return f"{cell(part)} of {cell(whole)}"


def _size(value: int | None) -> str | None:
    return None if value is None else gib(value)
