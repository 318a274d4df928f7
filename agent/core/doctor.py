"""What is wrong with a node, from what is known of it. Pure: the same findings for a person and for the portal."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agent.wire.facts import NodeFacts
from agent.wire.reason import Reason

_LOW_DISK = 0.05
_LOW_DISK_BYTES = 2 * 2**30
_LOW_MEMORY = 0.05
_SKEW_S = 30.0
_SOON_S = 14 * 86400.0


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
    server_skew_s: float | None = None
    unreachable: str | None = None
    """Why the control plane cannot be reached, when that was tried."""
    engine_user: str | None = None
    engine_user_problems: tuple[str, ...] = ()
    unknown_settings: tuple[str, ...] = ()
    home_problem: str | None = None


def findings(seen: Seen) -> tuple[Finding, ...]:
    """One finding a check that could be made, the worst first."""
    made = (
        *_engines(seen.facts),
        *_room("disk", seen.facts.disk_bytes, seen.facts.disk_free_bytes, _LOW_DISK, _LOW_DISK_BYTES),
        *_room("memory", seen.facts.memory_bytes, seen.facts.memory_free_bytes, _LOW_MEMORY, 0),
        *_certificate(seen.certificate_left_s),
        *_clock(seen.server_skew_s),
        *_link(seen.unreachable),
        *_user(seen),
        *_settings(seen),
    )
    order = {Level.PROBLEM: 0, Level.WARNING: 1, Level.OK: 2}
    return tuple(sorted(made, key=lambda f: order[f.level]))


def _engines(facts: NodeFacts) -> list[Finding]:
    if facts.engines is None:
        return []
    if not facts.engines:
        return [_problem("engines", "no_engine", "no engine is installed on this node", "pip install xllamacpp")]
    return [
        _problem("engines", "engine_unusable", f"{e.name}: {e.problem}")
        if e.problem
        else _ok("engines", f"{e.name} {e.version or 'of an unknown version'} ({e.build or 'installed'})")
        for e in facts.engines
    ]


def _room(name: str, whole: int | None, free: int | None, share: float, least: int) -> list[Finding]:
    if not whole or free is None:
        return []
    told = f"{free / 2**30:.1f} of {whole / 2**30:.1f} GiB of {name} are free"
    if free < max(whole * share, min(least, whole * 0.5)):
        return [_warning(name, f"low_{name}", told)]
    return [_ok(name, told)]


def _certificate(left_s: float | None) -> list[Finding]:
    if left_s is None:
        return []
    if left_s <= 0:
        return [
            _problem(
                "certificate", "certificate_expired", "the node's certificate has expired", "llmgw-agent join CODE"
            )
        ]
    told = f"the node's certificate is good for {left_s / 86400:.0f} more days"
    if left_s < _SOON_S:
        return [_warning("certificate", "certificate_ends_soon", told, "llmgw-agent join CODE")]
    return [_ok("certificate", told)]


def _clock(skew_s: float | None) -> list[Finding]:
    if skew_s is None:
        return []
    told = f"this node's clock and the control plane's differ by {abs(skew_s):.1f} s"
    return [_warning("clock", "clock_skew", told)] if abs(skew_s) > _SKEW_S else [_ok("clock", told)]


def _link(unreachable: str | None) -> list[Finding]:
    return [] if unreachable is None else [_problem("link", "control_plane_unreachable", unreachable)]


def _user(seen: Seen) -> list[Finding]:
    if seen.engine_user is None:
        return []
    if seen.engine_user_problems:
        return [_problem("engine user", "engine_user_unusable", p) for p in seen.engine_user_problems]
    return [_ok("engine user", f"engines run as {seen.engine_user}")]


def _settings(seen: Seen) -> list[Finding]:
    found = []
    if seen.home_problem is not None:
        found.append(_problem("home", "home_unusable", seen.home_problem))
    for name in seen.unknown_settings:
        found.append(_warning("settings", "unknown_agent_setting", f"agent.yaml has {name!r}, which is not known here"))
    return found


def _ok(check: str, sentence: str) -> Finding:
    return Finding(check, Level.OK, Reason("ok", sentence))


def _warning(check: str, code: str, sentence: str, command: str = "") -> Finding:
    return Finding(check, Level.WARNING, Reason(code, sentence, command))


def _problem(check: str, code: str, sentence: str, command: str = "") -> Finding:
    return Finding(check, Level.PROBLEM, Reason(code, sentence, command))
