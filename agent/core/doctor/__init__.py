"""What is wrong with a node, from what is known of it. Pure: the same findings for a person and for the portal."""

from __future__ import annotations

from dataclasses import replace

from agent.core.doctor import devices, engines, fabrics, firewall
from agent.core.doctor.finding import Finding, Level, Seen, ok, problem, warning
from agent.wire.facts import NodeFacts

_LOW_DISK = 0.05
_LOW_DISK_BYTES = 2 * 2**30
_LOW_MEMORY = 0.05
_SKEW_S = 30.0
_SOON_S = 14 * 86400.0


def findings(seen: Seen) -> tuple[Finding, ...]:
    """One finding a check that could be made, the worst first."""
    made = (
        *engines.findings(seen),
        *devices.findings(seen),
        *fabrics.findings(seen),
        *_vectors(seen.facts),
        *_room("disk", seen.facts.disk_bytes, seen.facts.disk_free_bytes, _LOW_DISK, _LOW_DISK_BYTES),
        *_room("memory", seen.facts.memory_bytes, seen.facts.memory_free_bytes, _LOW_MEMORY, 0),
        *_certificate(seen.certificate_left_s, seen.renewal_problem),
        *_clock(seen.server_skew_s),
        *_link(seen.unreachable),
        *firewall.findings(seen),
        *_user(seen),
        *_settings(seen),
    )
    order = {Level.PROBLEM: 0, Level.WARNING: 1, Level.OK: 2}
    return tuple(sorted(made, key=lambda f: order[f.level]))


def _vectors(facts: NodeFacts) -> list[Finding]:
    if facts.arch not in ("x86_64", "AMD64") or facts.vector_extensions is None:
        return []
    if "avx2" not in facts.vector_extensions:
        said = "this CPU has no AVX2 (a VM whose CPU model hides it?): engines on the CPU are many times slower, or end"
        return [warning("cpu", "no_avx2", said, "set the VM's CPU type to host")]
    return [ok("cpu", f"vector extensions: {', '.join(facts.vector_extensions)}")]


def _room(name: str, whole: int | None, free: int | None, share: float, least: int) -> list[Finding]:
    if not whole or free is None:
        return []
    told = f"{free / 2**30:.1f} of {whole / 2**30:.1f} GiB of {name} are free"
    if free < max(whole * share, min(least, whole * 0.5)):
        return [warning(name, f"low_{name}", told)]
    return [ok(name, told)]


def _certificate(left_s: float | None, renewal: str | None) -> list[Finding]:
    if left_s is None:
        return []
    if left_s <= 0:
        return [
            problem("certificate", "certificate_expired", "the node's certificate has expired", "llmgw-agent join CODE")
        ]
    told = f"the node's certificate is good for {left_s / 86400:.0f} more days"
    if renewal is not None:
        said = f"{told}, and could not be renewed: {renewal}"
        found = problem("certificate", "certificate_not_renewed", said, "llmgw-agent join CODE")
        return [found if left_s < _SOON_S else replace(found, level=Level.WARNING)]
    if left_s < _SOON_S:
        return [warning("certificate", "certificate_ends_soon", told, "llmgw-agent join CODE")]
    return [ok("certificate", told)]


def _clock(skew_s: float | None) -> list[Finding]:
    if skew_s is None:
        return []
    told = f"this node's clock and the control plane's differ by {abs(skew_s):.1f} s"
    return [warning("clock", "clock_skew", told)] if abs(skew_s) > _SKEW_S else [ok("clock", told)]


def _link(unreachable: str | None) -> list[Finding]:
    return [] if unreachable is None else [problem("link", "control_plane_unreachable", unreachable)]


def _user(seen: Seen) -> list[Finding]:
    if seen.engine_user is None:
        return []
    if seen.engine_user_problems:
        return [problem("engine user", "engine_user_unusable", p) for p in seen.engine_user_problems]
    return [ok("engine user", f"engines run as {seen.engine_user}")]


def _settings(seen: Seen) -> list[Finding]:
    found = []
    if seen.home_problem is not None:
        found.append(problem("home", "home_unusable", seen.home_problem))
    if seen.settings_problem is not None:
        found.append(problem("settings", "agent_settings_unusable", seen.settings_problem))
    for name in seen.unknown_settings:
        found.append(warning("settings", "unknown_agent_setting", f"agent.yaml has {name!r}, which is not known here"))
    return found


__all__ = ["Finding", "Level", "Seen", "findings"]
