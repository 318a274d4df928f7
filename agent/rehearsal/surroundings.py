"""What a pretended machine tells of itself: the facts it was made with, and what its engines hold now."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from agent.core import cards
from agent.node import discovery
from agent.node.discovery import Moving
from agent.rehearsal.host import PretendedHost
from agent.wire.facts import GpuFacts, HolderFacts, NodeFacts

_IDLE, _BUSY = 1 / 8, 5 / 8
"""Shares of a card's power limit, with nothing on it and with an engine at work."""


class PretendedSurroundings:
    """See `agent.node.discovery.Surroundings`."""

    def __init__(self, facts: NodeFacts, host: PretendedHost, weights_here: Collection[str]) -> None:
        self._facts, self._host, self._weights = facts, host, weights_here

    def facts(self, address: str | None, own_ports: Collection[int]) -> NodeFacts:
        return replace(
            self._facts,
            address=address or self._facts.address,
            boot_id=self._host.boot_id(),
            agent_version=discovery.version(),
            memory_free_bytes=self._memory_free(),
            gpus=None if self._facts.gpus is None else tuple(map(self._card, self._facts.gpus)),
            weights=tuple(sorted(self._weights)),
        )

    def moving(self) -> Moving:
        ports, devices = self._facts.rdma_ports, self._facts.gpus
        return Moving(
            memory_free_bytes=self._memory_free(),
            disk_free_bytes=self._facts.disk_free_bytes,
            load_1m=float(len(self._host.engines)),
            gpus=None if devices is None else tuple(cards.figures(self._card(c)) for c in devices),
            rdma_active=None if ports is None else tuple(p.active for p in ports),
        )

    def _memory_free(self) -> int | None:
        free = self._facts.memory_free_bytes
        held = self._host.resident_bytes(tuple(self._host.engines)) or 0
        return None if free is None else max(0, free - held)

    def _card(self, card: GpuFacts) -> GpuFacts:
        held = self._host.held(card.index)
        working = any(card.index in e.spec.devices and e.running for e in tuple(self._host.engines.values()))
        limit = card.power_limit_w
        return replace(
            card,
            memory_free_bytes=None if card.memory_bytes is None else card.memory_bytes - held,
            power_w=None if limit is None else limit * (_BUSY if working else _IDLE),
            utilization_percent=None if card.utilization_percent is None else 90.0 if working else 0.0,
            holders=tuple(
                HolderFacts(e.identity.pid, held)
                for e in tuple(self._host.engines.values())
                if card.index in e.spec.devices
            ),
        )
