"""Racks, rows, rooms, sites and PDUs, and the cluster's fabrics, as plain dicts. Watts, bytes; an unknown figure is
None."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

from fleet.core import devices, fabrics, facility, room
from fleet.core.facility import KINDS, Location, options
from fleet.core.world import NodeView, World
from fleet.selectors.world import load_world
from llmgw.cluster.errors import NotFound


def places() -> list[dict[str, Any]]:
    """Every place of `KINDS` that a node's labels or the settings name: what it draws, may draw, and whether it is
    held. `draws_w`: its cards as last measured (None: no card there says); `may_draw_w`: with each claimed card at its
    limit, and the nodes besides."""
    world = load_world(time.time())
    rooms = room.of(world)
    ledger = next((r.ledger for r in rooms.values() if r.ledger is not None), None)
    at = {n.id: facility.location(n.labels) for n in world.nodes}
    held: dict[facility.Place, list[str]] = defaultdict(list)
    for kind in KINDS:
        held |= {(kind, name): [] for name in facility.named(world.facility, kind)}
    for node, where in at.items():
        for place in where.places:
            held[place].append(node)
    nodes = {n.id: n for n in world.nodes}
    models = _models(world)
    found = []
    for place in sorted(held, key=lambda p: (KINDS.index(p[0]), p[1])):
        said, members = options(world.facility, place), held[place]
        draws = [_draws(nodes[n], at[n], place) for n in members]
        known = [d for d in draws if d is not None]
        found.append(
            {
                "kind": place[0],
                "name": place[1],
                "within": _within(place, [at[n] for n in members]),
                "nodes": members,
                "models": sorted({m for n in members for m in models[n]}),
                "draws_w": round(sum(known)) if known else None,
                "may_draw_w": round(ledger.watts.get(place, 0.0)) if ledger is not None and members else 0,
                "power_cap_w": said.power_cap_w,
                "held": said.held,
                "note": said.note,
            }
        )
    return found


def place(kind: str, name: str) -> dict[str, Any]:
    """One of them. Raises `NotFound`."""
    found = places()
    one = next((p for p in found if (p["kind"], p["name"]) == (kind, name)), None)
    if one is None:
        known = ", ".join(p["name"] for p in found if p["kind"] == kind) or "none"
        raise NotFound(
            "no_such_place",
            f"no node is labelled with the {kind} {name}; there are: {known}",
            f"llmgw node label NODE llmgw.io/{kind}={name}",
        )
    return one


def all_fabrics() -> dict[str, Any]:
    """`fabrics`: each with its nodes, which of them have every card free (`whole`), and what weights they hold; `off`:
    why nodes are not on one that they could be on; `findings`: what an operator should look at."""
    world = load_world(time.time())
    found = fabrics.of(world.nodes)
    nodes = {n.id: n for n in world.nodes}
    spread = {r.id: r for r in world.replicas if r.fabric}
    free = {s.fabric: s for s in devices.spread(found, devices.of(world.nodes, world.replicas, lambda _, gpu: gpu))}
    return {
        "fabrics": [
            {
                "fabric": i.name,
                "kind": i.kind,
                "identity": i.identity or None,
                "nodes": [
                    {
                        "node": node,
                        "adapters": list(member.adapters),
                        "rate_gbps": member.rate_gbps,
                        "gid_index": member.gid_index,
                        "gpus": len(nodes[node].facts.gpus or ()),
                        "weights": sorted(nodes[node].facts.weights or ()),
                    }
                    for node, member in i.members.items()
                ],
                "whole": list(free[i.name].whole),
                "cards": free[i.name].cards,
                "cards_used": free[i.name].used,
                "weights": _weights([nodes[n] for n in i.members]),
                "replicas": sorted(r.id for r in spread.values() if r.fabric == i.name),
            }
            for i in found.islands
        ],
        "off": [
            {"node": node, "code": r.code, "sentence": r.sentence, "command": r.command}
            for node, reasons in sorted(found.off.items())
            for r in reasons
        ],
        "findings": [{"code": r.code, "sentence": r.sentence, "command": r.command} for r in found.findings],
    }


def fabric(name: str) -> dict[str, Any]:
    """One of them. Raises `NotFound`."""
    found = all_fabrics()["fabrics"]
    one = next((f for f in found if f["fabric"] == name), None)
    if one is None:
        known = ", ".join(f["fabric"] for f in found) or "none"
        raise NotFound("no_such_fabric", f"there is no fabric {name}; there are: {known}", "llmgw fabric list")
    return dict(one)


def _weights(nodes: list[NodeView]) -> dict[str, int]:
    """What the nodes hold: source → on how many."""
    counts: dict[str, int] = defaultdict(int)
    for node in nodes:
        for source in node.facts.weights or ():
            counts[source] += 1
    return dict(sorted(counts.items()))


def _models(world: World) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for replica in world.replicas:
        for shard in replica.shards:
            found[shard.node].add(replica.model)
    return found


def _draws(node: NodeView, where: Location, place: facility.Place) -> float | None:
    cards = [c for c in node.facts.gpus or () if c.power_w is not None]
    if not cards:
        return None
    watts = facility.may_draw_w(cards, ())
    return watts / len(where.pdus) if place[0] == "pdu" else watts


def _within(place: facility.Place, where: list[Location]) -> str:
    """`sto1/hall-b/12`: of a rack, where it stands."""
    if place[0] == "pdu":
        return ", ".join(sorted({w.rack for w in where if w.rack}))
    larger = _LARGER[place[0]]
    parts = {"/".join(filter(None, (getattr(w, kind) for kind in larger))) for w in where}
    return ", ".join(sorted(parts - {""}))


_LARGER = {"rack": ("site", "room", "row"), "row": ("site", "room"), "room": ("site",), "site": ()}
