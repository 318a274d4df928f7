"""Every node's cards and fabrics as they stand now, for maps and tables: a fixed number of queries.

What stands still comes of the store, what a card does now of the link through Redis (`fleet.selectors.figures`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from agent.wire.facts import GpuFacts
from fleet.core import cards, devices, fabrics
from fleet.core.devices import Device
from fleet.core.fabrics import Fabrics
from fleet.core.world import NodeView, ReplicaView
from fleet.selectors import figures, kept
from fleet.selectors.hearing import ears
from llmgw.cluster.actions import settings as cluster_settings


@dataclass(frozen=True, slots=True)
class Machines:
    """One look. `devices` by node and place."""

    nodes: tuple[NodeView, ...]
    replicas: tuple[ReplicaView, ...]
    devices: tuple[Device, ...]
    fabrics: Fabrics
    heard: bool
    """An agent link runs."""


def look() -> Machines:
    """The machines now."""
    now = time.time()
    links = ears(now)
    views, reported = kept.nodes(links, cluster_settings.in_force().fleet.node_lost_s, now)
    replicas = kept.replicas(kept.shards({pk: view.id for pk, view in views.items()}))
    nodes, told = tuple(views.values()), figures.of_every(now)
    fresh = {n.id for n, at in zip(nodes, reported, strict=True) if at is not None and now - at <= figures.REPORT_S}

    def of(node: NodeView, gpu: GpuFacts) -> GpuFacts:
        if node.connected and node.id not in told and node.id in fresh:
            return gpu  # as it was reported a moment ago
        return figures.over(gpu, told.get(node.id, {}).get(gpu.index))

    heard = links.since is not None
    found = devices.of(nodes, replicas, of, heard=heard)
    return Machines(nodes, replicas, found, fabrics.of(nodes), heard)


def gpus(
    node: str | None = None, gpu_class: str | None = None, model: str | None = None, rack: str | None = None
) -> list[dict[str, Any]]:
    """Every card and MIG instance, by node and place: what it is, what works on it, what it does now."""
    return [row(d) for d in wanted(look().devices, node=node, gpu_class=gpu_class, model=model, rack=rack)]


def wanted(
    found: tuple[Device, ...],
    *,
    node: str | None = None,
    gpu_class: str | None = None,
    model: str | None = None,
    rack: str | None = None,
) -> tuple[Device, ...]:
    """Those of a node, class, model, rack; None or "": of every one."""
    return tuple(
        d
        for d in found
        if (not node or d.node == node)
        and (not gpu_class or cards.kind(d.gpu) == gpu_class)
        and (not model or (d.work is not None and d.work.model == model))
        and (not rack or d.rack == rack)
    )


def row(device: Device) -> dict[str, Any]:
    """As commands and the API tell it."""
    gpu, work = device.gpu, device.work
    return {
        "node": device.node,
        "device": device.name,
        "gpu_class": cards.kind(gpu),
        "state": device.state,
        "model": work.model if work is not None else None,
        "replica": work.replica if work is not None else None,
        "rank": work.rank if work is not None else None,
        "memory_bytes": gpu.memory_bytes,
        "memory_used_bytes": device.used_bytes,
        "busy_percent": device.busy_percent,
        "busy_by": device.busy_by or None,
        "power_w": gpu.power_w if not gpu.mig_profile else None,
        "power_limit_w": gpu.power_limit_w if not gpu.mig_profile else None,
        "temperature_c": gpu.temperature_c,
        "foreign_bytes": device.foreign_bytes,
        "problem": gpu.problem,
        "unusable": device.unusable or None,
        "mig_profile": gpu.mig_profile,
        "rack": device.rack or None,
        "node_state": device.standing,
    }
