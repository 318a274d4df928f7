"""What of a node placement looks at that stands still, as one number: nodes of one build are judged once. Pure."""

from __future__ import annotations

from itertools import count
from typing import Any

from agent.wire.facts import GpuFacts, NodeFacts

_MOST = 20_000
_known: dict[int, tuple[NodeFacts, int]] = {}
"""By the facts' identity; they are kept alive here, so that no other facts can come to have it."""
_numbers: dict[tuple[Any, ...], int] = {}
_next = count()


def of(facts: NodeFacts) -> int:
    """Equal for two nodes on which the same profiles fit, other things being equal."""
    found = _known.get(id(facts))
    if found is None or found[0] is not facts:
        if len(_known) >= _MOST:
            _known.clear()
            _numbers.clear()
        made = _made(facts)
        number = _numbers.get(made)
        if number is None:
            number = _numbers[made] = next(_next)
        found = _known[id(facts)] = (facts, number)
    return found[1]


def _made(facts: NodeFacts) -> tuple[Any, ...]:
    return (
        facts.os,
        facts.arch,
        facts.cpu_count,
        facts.vector_extensions,
        facts.memory_bytes,
        facts.driver,
        facts.address is not None,
        None if facts.gpus is None else tuple(map(_card, facts.gpus)),
        None if facts.engines is None else tuple(map(repr, facts.engines)),
        facts.weights,
    )


def _card(card: GpuFacts) -> tuple[Any, ...]:
    return (
        card.index,
        card.name,
        card.gpu_class,
        card.memory_bytes,
        card.compute_capability,
        card.numa_node,
        card.mig_profile,
        card.mig_enabled,
        card.nvlinks,
        card.switched,
        card.problem,
    )
