"""One thing that the doctor found, and what it looked at. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agent.wire.facts import NodeFacts
from agent.wire.reason import Reason


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    level: Level
    reason: Reason


@dataclass(frozen=True, slots=True)
class Seen:
    """What was looked at; None where it could not be told."""

    facts: NodeFacts
    certificate_left_s: float | None = None
    """Until the node's certificate ends; negative when it has."""
    renewal_problem: str | None = None
    """Why it could not be renewed."""
    server_skew_s: float | None = None
    unreachable: str | None = None
    """Why the control plane cannot be reached, when that was tried."""
    engine_user: str | None = None
    engine_user_problems: tuple[str, ...] = ()
    unknown_settings: tuple[str, ...] = ()
    settings_problem: str | None = None
    """Why agent.yaml, as it stands, is not what the agent runs on."""
    home_problem: str | None = None
    modules: frozenset[str] | None = None
    """Kernel modules that are loaded."""
    memlock_bytes: int | None = None
    """How much memory an engine may pin; -1 without a limit."""
    fabric_manager: str | None = None
    """Its version where it runs, `stopped` where it is installed and does not."""
    imex: str | None = None
    """The same of nvidia-imex."""
    imex_channels: bool | None = None
    """Whether there is an IMEX channel."""
    installs: bool = False
    """The agent may install engines."""
    left_out: frozenset[str] = frozenset()
    """Engines that agent.yaml names or keeps off the node."""
    engines_free_bytes: int | None = None
    programs_missing: frozenset[str] = frozenset()
    """Of those that engines need: what is not there."""
    nftables: str | None = None
    """What `nft -j list ruleset` says; None where there is no nft, or it may not be asked."""
    engine_ports: tuple[int, ...] = ()
    """Those that engines here listen on, else those that the first ones would."""


def ok(check: str, sentence: str) -> Finding:
    return Finding(check, Level.OK, Reason("ok", sentence))


def warning(check: str, code: str, sentence: str, command: str = "") -> Finding:
    return Finding(check, Level.WARNING, Reason(code, sentence, command))


def problem(check: str, code: str, sentence: str, command: str = "") -> Finding:
    return Finding(check, Level.PROBLEM, Reason(code, sentence, command))
