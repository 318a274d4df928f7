"""What nodes and their cards do now: from the link, which hears it, through Redis to the exporter and to pages.

One hash, a field a node, written every two seconds. Nothing of it is in the store: a thousand nodes that breathe write
no row. A figure that a node did not tell is absent. Needs no Django.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from agent.wire.facts import INSTANCES, GpuFacts, GpuFigures, NodeFacts, PortFacts, device_name
from llmgw import metrics

log = logging.getLogger(__name__)
KEY = "llmgw:nodes"
"""Redis hash: node id → `Told`."""
STALE_S = 15.0


class Card(msgspec.Struct, omit_defaults=True):
    """What of a device stands still between two reports."""

    index: int
    gpu_class: str = ""
    memory_bytes: int | None = None
    power_limit_w: float | None = None
    ecc_uncorrected: int | None = None
    nvlink_peers: int | None = None
    problem: str | None = None


class Port(msgspec.Struct, omit_defaults=True):
    adapter: str
    port: int
    active: bool | None = None


class Told(msgspec.Struct, omit_defaults=True):
    """The newest of one node. `at` is Unix seconds of the link that heard it."""

    at: float
    cpus: int | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    cards: tuple[Card, ...] = ()
    ports: tuple[Port, ...] = ()
    engines: dict[str, bool] = {}
    """Engine → whether it cannot be used."""
    memory_free_bytes: int | None = None
    disk_free_bytes: int | None = None
    load_1m: float | None = None
    gpus: tuple[GpuFigures, ...] = ()


def reported(facts: NodeFacts, at: float) -> Told:
    """Of a full report."""
    return Told(
        at=at,
        cpus=facts.cpu_count,
        memory_bytes=facts.memory_bytes,
        disk_bytes=facts.disk_bytes,
        cards=tuple(map(_card, facts.gpus or ())),
        ports=tuple(map(_port, facts.rdma_ports or ())),
        engines={e.name: e.problem is not None for e in facts.engines or ()},
        memory_free_bytes=facts.memory_free_bytes,
        disk_free_bytes=facts.disk_free_bytes,
    )


def _card(gpu: GpuFacts) -> Card:
    return Card(
        gpu.index,
        gpu.gpu_class or "",
        gpu.memory_bytes,
        gpu.power_limit_w if gpu.index < INSTANCES else None,
        gpu.ecc_uncorrected if gpu.index < INSTANCES else None,
        len(gpu.nvlinks) if gpu.nvlinks is not None else None,
        gpu.problem,
    )


def _port(port: PortFacts) -> Port:
    return Port(port.adapter, port.port, port.active)


_decoder = msgspec.json.Decoder(Told)
encode = msgspec.json.Encoder().encode


def read(raw: Mapping[bytes, bytes], now: float) -> Iterator[tuple[str, Told]]:
    """Of every node that was heard lately."""
    for name, data in raw.items():
        try:
            told = _decoder.decode(data)
        except msgspec.MsgspecError as e:  # of another version
            log.debug("what %r tells cannot be read: %s", name, e)
            continue
        if now - told.at <= STALE_S:
            yield name.decode(errors="replace"), told


def gauges(nodes: Iterable[tuple[str, Told]]) -> metrics.State:
    """As the exporter shows them."""
    found: list[tuple[str, list[str], float]] = []
    for node, told in nodes:
        _add(found, "llmgw_node_", [node], _NODE, told)
        for port in told.ports:
            if port.active is not None:
                found.append(("llmgw_node_port_active", [node, port.adapter, str(port.port)], float(port.active)))
        for engine, unusable in told.engines.items():
            found.append(("llmgw_node_engine_problem", [node, engine], float(unusable)))
        moving = {f.index: f for f in told.gpus}
        for card in told.cards:
            labels = [node, device_name(card.index), card.gpu_class]
            _add(found, "llmgw_gpu_", labels, _STILL, card)
            found.append(("llmgw_gpu_problem", labels, float(card.problem is not None)))
            figures = moving.get(card.index)
            if figures is not None:
                _add(found, "llmgw_gpu_", labels, _MOVING if card.index < INSTANCES else _OF_INSTANCE, figures)
    return metrics.State("nodes", 0.0, gauges=found)


def _add(
    found: list[tuple[str, list[str], float]], prefix: str, labels: list[str], names: Mapping[str, str], of: object
) -> None:
    for name, field in names.items():
        value = getattr(of, field)
        if value is not None:
            found.append((prefix + name, labels, float(value)))


_NODE = {
    "cpus": "cpus",
    "load_1m": "load_1m",
    "memory_bytes": "memory_bytes",
    "memory_free_bytes": "memory_free_bytes",
    "disk_bytes": "disk_bytes",
    "disk_free_bytes": "disk_free_bytes",
}
_STILL = {
    "memory_bytes": "memory_bytes",
    "power_limit_watts": "power_limit_w",
    "ecc_uncorrected": "ecc_uncorrected",
    "nvlink_peers": "nvlink_peers",
}
_OF_INSTANCE = {"memory_free_bytes": "memory_free_bytes", "temperature_celsius": "temperature_c"}
"""A MIG instance's own, and its card's heat. The card's draw and counters are not its own, and would be added up."""
_MOVING = _OF_INSTANCE | {
    "power_watts": "power_w",
    "utilization_percent": "utilization_percent",
    "sm_active_percent": "sm_active_percent",
    "sm_occupancy_percent": "sm_occupancy_percent",
    "tensor_active_percent": "tensor_active_percent",
    "dram_active_percent": "dram_active_percent",
}
