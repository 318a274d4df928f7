"""The real machine under an agent: its context, and its surroundings."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from agent.core import proc
from agent.node import counters, discovery, installed, tracing
from agent.node.cardwatch import CardWatch
from agent.node.clock import Clock
from agent.node.context import Context
from agent.node.home import Home
from agent.node.install import libraries
from agent.node.install.installer import Ways, read_state
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
    engines, clock = EnginesHere(home, settings), Clock()
    return Context(
        home=home,
        host=LinuxHost(cards or card_watch(settings)),
        weights=_weights(home, settings),
        clock=clock,
        tracing=tracing.configured(settings, os.environ, clock) if settings is not None else None,
        engine_path=engines.path,
        import_from=installed.import_from(),
        environ=dict(os.environ),
        engine_user=settings.engine_user if settings is not None else None,
        cores=discovery.cpus(),
    )


def ways(home: Home, settings: Settings) -> Ways:
    """How engines are installed on it."""
    of = settings.installs
    return Ways(
        root=home.engines,
        left_out=frozenset(settings.engines) | frozenset(of.disabled),
        github=settings.github,
        python=of.python,
        uv=of.uv,
        user=settings.engine_user,
        packages=of.packages,
        import_from=installed.import_from(),
    )


def have(facts: NodeFacts) -> frozenset[str]:
    """Engines that this node has without an installation: the wheel computes on CPUs alone, so it is enough where
    there is nothing else to compute on."""
    here = installed.wheel(facts.vector_extensions, facts.arch)
    return frozenset({"llamacpp"} if here is not None and here.problem is None and not facts.gpus else ())


def _weights(home: Home, settings: Settings | None) -> Weights:
    if settings is None:
        return Weights(home.weights)
    return Weights(settings.weights or home.weights, hub=settings.hub, token=settings.hub_token)


class EnginesHere:
    """This machine's engines. What agent.yaml names and the wheel are looked for until something is found: whoever
    changes one restarts the agent. A wheel that cannot be used (a library is missing) and what is installed are looked
    at anew each time."""

    def __init__(self, home: Home, settings: Settings | None) -> None:
        self._root = home.engines
        self._settings = settings
        self._found: tuple[tuple[EngineFacts, ...], EngineFacts | None] = ((), None)

    def facts(self) -> tuple[EngineFacts, ...]:
        disabled = self._settings.installs.disabled if self._settings is not None else ()
        if self._found == ((), None) or ((seen := self._found[1]) is not None and seen.problem is not None):
            libraries.forget()
            cpuinfo = Path("/proc/cpuinfo").read_text(errors="replace")
            wheel = installed.wheel(proc.vector_extensions(cpuinfo), os.uname().machine)
            named = self._found[0] or installed.named(self._settings.engines if self._settings is not None else {})
            self._found = (named, wheel)
        named, wheel = self._found
        kept = read_state(self._root)
        if self._settings is not None and not self._settings.installs.on:
            kept = tuple(e for e in kept if e.path is not None)  # nobody installs here: what was begun is not told
        return installed.laid(named, wheel, disabled=disabled, kept=kept)

    def path(self, name: str) -> str | None:
        return next((e.path for e in self.facts() if e.name == name), None)


class ThisMachine:
    """`Surroundings` as they are."""

    def __init__(self, home: Home, settings: Settings, cards: CardWatch | None = None) -> None:
        self._cards = cards or card_watch(settings)
        self._kept = _weights(home, settings)
        self._settings = settings
        self._engines = EnginesHere(home, settings)

    def facts(self, address: str | None, own_ports: Collection[int]) -> NodeFacts:
        engines, cards, whole = self._engines.facts(), self._cards.cards(), self._kept.whole()
        found = discovery.facts(self._settings, self._kept.folder, address, engines, own_ports, cards, whole)
        return replace(found, installs=self._settings.installs.on)

    def moving(self) -> discovery.Moving:
        return discovery.moving(self._kept.folder, self._cards.figures(FIGURES_S))
