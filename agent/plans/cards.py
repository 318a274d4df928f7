"""What a build asks of a node's cards and driver, read from its facts."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.wire.facts import NodeFacts

_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Cards:
    """`driver`: its first number (580), `capability`: of the newest card; None where it is not known."""

    count: int
    driver: int | None
    capability: tuple[int, int] | None
    only_instances: bool
    """Nothing but MIG instances, which Vulkan does not see."""


def cards(facts: NodeFacts) -> Cards | None:
    """None: whether the node has cards is not known."""
    if facts.gpus is None:
        return None
    found = [_capability(g.compute_capability) for g in facts.gpus]
    return Cards(
        count=len(facts.gpus),
        driver=_first(facts.driver),
        capability=max((c for c in found if c is not None), default=None),
        only_instances=bool(facts.gpus) and all(g.mig_profile for g in facts.gpus),
    )


def shown(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"


def _capability(text: str | None) -> tuple[int, int] | None:
    numbers = _NUMBERS.findall(text or "")
    return (int(numbers[0]), int(numbers[1])) if len(numbers) >= 2 else None


def _first(text: str | None) -> int | None:
    numbers = _NUMBERS.findall(text or "")
    return int(numbers[0]) if numbers else None
