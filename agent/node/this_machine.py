"""The real machine under an agent: its context, and its surroundings."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from agent.core import proc
from agent.node import counters, discovery, installed
from agent.node.cardwatch import CardWatch
from agent.node.clock import Clock
from agent.node.context import Context
from agent.node.home import Home
from agent.node.linux import LinuxHost
from agent.node.settings import OFF, Settings
from agent.node.weights import Weights
from agent.wire.facts import EngineFacts, NodeFacts

FIGURES_S = 3.0
"""Between two looks at what moves of the cards."""


def card_watch(settings: Settings | None) -> CardWatch:
    """One an agent: whoever asks the driver does so by it."""
    asked = settings.discovery if settings is not None else {}
    exporter = asked.get("dcgm_exporter", counters.DEFAULT)
    return CardWatch(asked.get("nvidia_smi", "nvidia-smi"), None if exporter == OFF else exporter)


def context(home: Home, settings: Settings | None, cards: CardWatch | None = None) -> Context:
    """The real machine's."""
    found: dict[str, EngineFacts] = {}

    def engine_path(name: str) -> str | None:
        if not found:
            found.update({e.name: e for e in _engines(settings)})
        one = found.get(name)
        return None if one is None else one.path

    return Context(
        home=home,
        host=LinuxHost(cards or card_watch(settings)),
        weights=_weights(home, settings),
        clock=Clock(),
        engine_path=engine_path,
        import_from=installed.import_from(),
        environ=dict(os.environ),
        engine_user=settings.engine_user if settings is not None else None,
    )


def _weights(home: Home, settings: Settings | None) -> Weights:
    if settings is None:
        return Weights(home.weights)
    return Weights(settings.weights or home.weights, hub=settings.hub, token=settings.hub_token)


def _engines(settings: Settings | None) -> tuple[EngineFacts, ...]:
    cpuinfo = Path("/proc/cpuinfo").read_text(errors="replace")
    configured = settings.engines if settings is not None else {}
    return installed.engines(configured, proc.vector_extensions(cpuinfo), os.uname().machine)


class ThisMachine:
    """`Surroundings` as they are. Engines are looked for until one is found: whoever changes one restarts the agent."""

    def __init__(self, home: Home, settings: Settings, cards: CardWatch | None = None) -> None:
        self._cards = cards or card_watch(settings)
        self._weights = settings.weights or home.weights
        self._settings = settings
        self._found: tuple[EngineFacts, ...] | None = None

    def facts(self, address: str | None, own_ports: Collection[int]) -> NodeFacts:
        if not self._found:
            self._found = _engines(self._settings)
        return discovery.facts(self._settings, self._weights, address, self._found, own_ports, self._cards.cards())

    def moving(self) -> discovery.Moving:
        return discovery.moving(self._weights, self._cards.figures(FIGURES_S))
