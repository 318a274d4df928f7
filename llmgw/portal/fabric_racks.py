"""The cluster's fabrics as pages draw them: each node a tray with its cards, a hole where one dropped out. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.wire.facts import PortFacts
from agent.wire.reason import Reason
from fleet.core import devices
from fleet.core.devices import Spread
from fleet.core.fabrics import NVLINK, Island
from fleet.core.world import NodeView
from fleet.selectors.machines import Machines
from llmgw.portal import gpumap
from llmgw.portal.gpumap import Box, Key


@dataclass(frozen=True, slots=True)
class Tray:
    """A node on a fabric; `off` says why it is not on it any more. `down`: its ports that are not active."""

    node: str
    standing: str
    box: Box | None = None
    rate_gbps: float | None = None
    adapters: tuple[str, ...] = ()
    down: tuple[str, ...] = ()
    whole: bool = False
    off: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Drawn:
    """A fabric; `rate_gbps` is of its slowest node, None where one does not tell."""

    island: Island
    spread: Spread
    trays: Sequence[Tray]
    rate_gbps: float | None

    @property
    def nvlink(self) -> bool:
        return self.island.kind == NVLINK

    @property
    def holes(self) -> int:
        return sum(bool(t.off) for t in self.trays)


@dataclass(frozen=True, slots=True)
class Page:
    fabrics: Sequence[Drawn]
    keys: Sequence[Key]
    findings: Sequence[Reason]
    off: Sequence[tuple[str, Reason]]
    """Nodes that are on no fabric drawn here that they could be on."""


def page(found: Machines) -> Page:
    """Every fabric, in the page's language."""
    drawn = gpumap.draw("work", found.devices, found.devices)
    boxes = {b.node: b for b in drawn.boxes}
    nodes = {n.id: n for n in found.nodes}
    spreads = {s.fabric: s for s in devices.spread(found.fabrics, found.devices)}
    fabrics, placed = [], set()
    for island in found.fabrics.islands:
        spread = spreads[island.name]
        trays = [_tray(nodes[n], island, boxes.get(n), n in spread.whole, found) for n in island.members]
        for name, reasons in found.fabrics.off.items():
            if island.kind == NVLINK and _was_on(nodes[name], island):
                placed.add(name)
                mine = tuple(r for r in reasons if r.code in ("nvlink_out", "nvlink_split", "imex"))
                trays.append(Tray(name, devices.standing(nodes[name], heard=found.heard), boxes.get(name), off=mine))
        rates = [m.rate_gbps for m in island.members.values()]
        known = [r for r in rates if r is not None]
        slowest = min(known) if known and len(known) == len(rates) else None
        fabrics.append(Drawn(island, spread, sorted(trays, key=lambda t: t.node), slowest))
    off = [(n, r) for n, reasons in sorted(found.fabrics.off.items()) for r in reasons if n not in placed]
    return Page(fabrics, drawn.keys, found.fabrics.findings, off)


def _tray(node: NodeView, island: Island, box: Box | None, whole: bool, found: Machines) -> Tray:
    member = island.members[node.id]
    down = tuple(_name(p) for p in node.facts.rdma_ports or () if p.active is False)
    standing = devices.standing(node, heard=found.heard)
    return Tray(node.id, standing, box, member.rate_gbps, member.adapters, () if island.kind == NVLINK else down, whole)


def _was_on(node: NodeView, island: Island) -> bool:
    """Its cards name the domain, although it is not in it as a whole."""
    cluster, _, clique = island.identity.partition("/")
    told = {(g.domain.cluster, str(g.domain.clique)) for g in node.facts.gpus or () if g.domain is not None}
    return (cluster, clique) in told


def _name(port: PortFacts) -> str:
    return f"{port.adapter}:{port.port}"
