"""A node's cards for its page: the table that moves by itself, and the picture of how they hang together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.template.loader import render_to_string
from django.utils import translation

from agent.wire.facts import PortFacts
from fleet.core.devices import Device
from fleet.selectors import details
from fleet.selectors.machines import Machines

MOST = 16
"""Cards whose links are shown each to each."""


def render(found: Machines, language: str, node: str) -> dict[str, str]:
    """By id; nothing of a node that is gone or has no card."""
    devices = [d for d in found.devices if d.node == node]
    if not devices:
        return {}
    with translation.override(language):
        return {"part-devices": render_to_string("portal/nodes/devices.html", {"cards": rows(devices)})}


def rows(devices: list[Device]) -> list[dict[str, object]]:
    """A row of the table each."""
    return [{**details.gpu(d.gpu), "device": d.name, "work": d.work, "foreign_bytes": d.foreign_bytes} for d in devices]


@dataclass(frozen=True, slots=True)
class Numa:
    """A NUMA node with what hangs on it; `number` None: it is not known of these."""

    number: int | None
    cards: tuple[Device, ...]
    ports: tuple[PortFacts, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """How a node is built. `matrix`: NVLinks of each card to each other one, where no switch joins all."""

    numa: tuple[Numa, ...]
    switched: bool
    names: tuple[str, ...]
    matrix: tuple[tuple[str, tuple[int | None, ...]], ...]


def picture(devices: Sequence[Device], ports: Sequence[PortFacts]) -> Picture:
    numbers = {d.gpu.numa_node for d in devices} | {p.numa_node for p in ports}
    order = sorted(numbers, key=lambda n: (n is None, n or 0))
    numa = tuple(
        Numa(
            n,
            tuple(d for d in devices if d.gpu.numa_node == n),
            tuple(p for p in ports if p.numa_node == n),
        )
        for n in order
    )
    whole = [d for d in devices if not d.gpu.mig_profile]
    linked = any(link.links for d in whole for link in d.gpu.nvlinks or ())
    matrix = []
    for one in whole if linked and len(whole) <= MOST else ():
        peers = {link.peer: link.links for link in one.gpu.nvlinks or ()}
        row = tuple(None if d is one or one.gpu.nvlinks is None else peers.get(d.gpu.index, 0) for d in whole)
        matrix.append((one.name, row))
    switched = bool(whole) and all(d.gpu.switched for d in whole)
    return Picture(numa, switched, tuple(d.name for d in whole), tuple(matrix))
