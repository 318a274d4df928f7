"""What the cluster's settings tell an agent, read from the wire: what does not fit is left out and said. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.plans import INSTALLABLE, build_problem, version_problem
from agent.plans.outcome import AUTO, NONE

SHORTEST_S, LONGEST_S = 0.2, 60.0
"""Between two heartbeats."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_URL = re.compile(r"https?://[^\s]+")


@dataclass(frozen=True, slots=True)
class Options:
    """`labels` lie over those of agent.yaml."""

    heartbeat_s: float = 2.0
    labels: dict[str, str] = field(default_factory=dict)
    engines: dict[str, str] | None = None
    """Engine to version, "" where none is to be installed. None: not said, so nothing changes."""
    builds: dict[str, str] = field(default_factory=dict)
    """Engine to the build that was chosen for this node."""
    mirror: str = ""
    """Where engines come from instead of GitHub."""
    index: str = ""
    """Of Python packages."""
    sha256: dict[str, str] = field(default_factory=dict)
    """What each file on the mirror must be."""


def read(heartbeat_s: float, settings: Mapping[str, Any]) -> tuple[Options, tuple[str, ...]]:
    """The options, and a sentence for everything that was left out. Names that this version does not know are a
    newer control plane's, and no problem."""
    problems: list[str] = []

    def texts(name: str, of: Any) -> dict[str, str]:
        found: dict[str, str] = {}
        if not isinstance(of, dict):
            problems.append(f"{name} must be names and values, and are {of!r}")
            return found
        for key, value in of.items():
            if isinstance(value, str) and key:
                found[key] = value
            else:
                problems.append(f"the {_ONE[name]} {key!r} must be a text, and is {value!r}")
        return found

    offline = settings.get("offline", {})
    if not isinstance(offline, dict):
        problems.append(f"offline must be names and values, and is {offline!r}")
        offline = {}
    options = Options(
        min(max(heartbeat_s, SHORTEST_S), LONGEST_S),
        texts("labels", settings.get("labels", {})),
        _engines(texts("engines", settings["engines"]), problems) if "engines" in settings else None,
        _builds(texts("engine builds", settings.get("engine_builds", {})), problems),
        _url("mirror", offline, problems),
        _url("index", offline, problems),
        _digests(texts("digests", offline.get("sha256", {})), problems),
    )
    return options, tuple(problems)


_ONE = {"labels": "label", "engines": "engine", "engine builds": "engine build", "digests": "digest of"}


def _engines(found: dict[str, str], problems: list[str]) -> dict[str, str]:
    kept = {}
    for engine, version in found.items():
        if engine not in INSTALLABLE:
            continue  # a newer control plane's
        bad = version_problem(engine, version)
        if bad is None:
            kept[engine] = version
        else:
            problems.append(bad.sentence)
    return kept


def _builds(found: dict[str, str], problems: list[str]) -> dict[str, str]:
    kept = {}
    for engine, build in found.items():
        if engine not in INSTALLABLE:
            continue
        if build in (AUTO, NONE, *INSTALLABLE[engine].builds):
            kept[engine] = build
        else:
            problems.append(build_problem(engine, build).sentence)
    return kept


def _url(name: str, offline: Mapping[str, Any], problems: list[str]) -> str:
    found = offline.get(name, "")
    if found == "" or (isinstance(found, str) and _URL.fullmatch(found)):
        return str(found)
    problems.append(f"offline.{name} must be an address like http://10.0.0.5:8081, and is {found!r}")
    return ""


def _digests(found: dict[str, str], problems: list[str]) -> dict[str, str]:
    kept = {}
    for name, digest in found.items():
        if _SHA256.fullmatch(digest):
            kept[name] = digest
        else:
            problems.append(f"the digest of {name!r} must be 64 hexadecimal digits, and is {digest[:80]!r}")
    return kept
