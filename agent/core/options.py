"""What the cluster's settings tell an agent, read from the wire: what does not fit is left out and said. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SHORTEST_S, LONGEST_S = 0.2, 60.0
"""Between two heartbeats."""


@dataclass(frozen=True, slots=True)
class Options:
    """`labels` lie over those of agent.yaml."""

    heartbeat_s: float = 2.0
    labels: dict[str, str] = field(default_factory=dict)


def read(heartbeat_s: float, settings: Mapping[str, Any]) -> tuple[Options, tuple[str, ...]]:
    """The options, and a sentence for everything that was left out. Names that this version does not know are a
    newer control plane's, and no problem."""
    problems: list[str] = []
    labels: dict[str, str] = {}
    found = settings.get("labels", {})
    if isinstance(found, dict):
        for name, value in found.items():
            if isinstance(value, str) and name:
                labels[name] = value
            else:
                problems.append(f"the label {name!r} must be a text, and is {value!r}")
    else:
        problems.append(f"labels must be names and values, and are {found!r}")
    return Options(min(max(heartbeat_s, SHORTEST_S), LONGEST_S), labels), tuple(problems)
