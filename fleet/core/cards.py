"""Which of a node's cards a replica gets: those with the most NVLink between them. Pure.

Among sets with as much NVLink those on the fewest NUMA nodes win, then those whose loss costs others least: pairs that
a bridge joins, and NUMA nodes that are all free, are left whole. All cards of a set are of one class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import lru_cache
from itertools import combinations
from math import comb

from agent.wire.facts import GpuFacts, NodeFacts, device_name
from agent.wire.reason import Reason

Cards = tuple[GpuFacts, ...]

_MOST_SETS = 2500
"""Sets that are all compared (four of sixteen cards are 1820); of more the best is searched for, and may be missed."""


def of(facts: NodeFacts) -> Cards | None:
    """The node's cards in their order; None where nobody knows."""
    return None if facts.gpus is None else tuple(sorted(facts.gpus, key=lambda c: c.index))


def choose(
    cards: Cards, taken: Collection[int], count: int, gpu_class: str | None = None, node: str = "the node"
) -> tuple[int, ...] | Reason:
    """The devices for one replica, in their order; or why there are not enough."""
    match groups(cards, taken, count, gpu_class, node):
        case Reason() as reason:
            return reason
        case found:
            return min(_best_of(group, count) for group in found)[-1]


def groups(
    cards: Cards, taken: Collection[int], count: int, gpu_class: str | None, node: str
) -> tuple[Cards, ...] | Reason:
    """The free cards of each class that has enough of them."""
    kind = f"{gpu_class} " if gpu_class else ""
    fitting = [c for c in cards if gpu_class in (None, c.gpu_class)]
    usable = [c for c in fitting if c.problem is None]
    if len(usable) < count <= len(fitting):
        bad = next(c for c in fitting if c.problem is not None)
        return Reason("gpu_unusable", f"{node}'s GPU {device_name(bad.index)} cannot be used: {bad.problem}")
    fitting = usable
    if count > 1 and any(c.mig_profile for c in fitting):
        whole = [c for c in fitting if not c.mig_profile]
        if len(whole) < count and gpu_class is not None:
            return Reason("mig_one", "a replica runs on one MIG instance: instances have no link between them")
        fitting = whole
    if len(fitting) < count:
        found = ", ".join(sorted({_kind(c) for c in cards})) or "none"
        return Reason("gpu_class", f"{count} {kind}GPUs are wanted, and {node} has {len(fitting)} (its GPUs: {found})")
    kinds = Counter(map(_kind, fitting))
    if max(kinds.values(), default=0) < count:
        return Reason(
            "gpus_mixed",
            f"{count} GPUs of one class are wanted, and {node} has {_counted(kinds)}: a replica on cards of several "
            "classes would run as the slowest does",
        )
    free = [c for c in fitting if c.index not in taken]
    large = tuple(tuple(c for c in free if _kind(c) == k) for k in kinds if sum(_kind(c) == k for c in free) >= count)
    if large:
        return large
    if len(free) < count:
        return Reason(
            "gpus_taken", f"{count} {kind}GPUs are wanted, and {len(free)} of {node}'s {len(fitting)} are free"
        )
    left = _counted(Counter(map(_kind, free)))
    return Reason("gpus_taken", f"{count} GPUs of one class are wanted, and of {node}'s are free: {left}")


def linked(cards: Cards, devices: Collection[int]) -> float | None:
    """The share of a set's pairs that NVLink joins; None where nobody knows, or there is no pair."""
    chosen = [c for c in cards if c.index in devices]
    if len(chosen) < 2 or all(c.nvlinks is None and c.switched is None for c in chosen):
        return None
    pairs = _pairs(chosen)
    return sum(links > 0 for links in pairs) / len(pairs)


def told(cards: Cards, devices: Sequence[int]) -> str:
    """`GPUs 2, 3 (4 NVLinks between them, NUMA node 1)`."""
    chosen = [c for c in cards if c.index in devices]
    names = ", ".join(device_name(d) for d in devices)
    if len(chosen) < 2:
        return f"GPU {names}"
    share = linked(cards, devices)
    if share is None:
        said = "whether NVLink joins them is not known"
    elif share == 0:
        said = "no NVLink between them"
    elif all(c.switched for c in chosen):
        said = "joined by NVSwitch"
    else:
        said = f"{sum(_pairs(chosen))} NVLinks between them"
        said += "" if share == 1 else ", and not between all of them"
    numa = sorted({c.numa_node for c in chosen if c.numa_node is not None})
    if numa:
        said += f", NUMA node{'' if len(numa) == 1 else 's'} {' and '.join(map(str, numa))}"
    return f"GPUs {names} ({said})"


def _kind(card: GpuFacts) -> str:
    return card.gpu_class or card.name or "unknown"


def _counted(kinds: Counter[str]) -> str:
    return ", ".join(f"{n} × {kind}" for kind, n in sorted(kinds.items()))


def _links(cards: Sequence[GpuFacts]) -> tuple[tuple[int, ...], ...]:
    """Between each two, by their places. Where a switch joins two the figure does not matter: all have the same."""
    places = {c.index: place for place, c in enumerate(cards)}
    found = [[0 if a is b else int(bool(a.switched and b.switched)) for b in cards] for a in cards]
    for one, card in enumerate(cards):
        for link in card.nvlinks or ():
            other = places.get(link.peer, one)
            if other != one:
                found[one][other] = found[other][one] = max(found[one][other], link.links)
    return tuple(map(tuple, found))


def _pairs(cards: Sequence[GpuFacts]) -> list[int]:
    return [count for one, row in enumerate(_links(cards)) for count in row[one + 1 :]]


_Cost = tuple[int, int, int, int]
"""Less is better: NVLinks (negative), NUMA nodes, NVLinks to others that stay free, cards left on the NUMA nodes."""


def _best_of(group: Cards, count: int) -> tuple[bool, _Cost, tuple[int, ...]]:
    """Comparable between classes: whole cards go before instances."""
    cost, places = _best(_links(group), tuple(c.numa_node for c in group), count)
    return group[0].mig_profile is not None, cost, tuple(group[p].index for p in places)


@lru_cache(maxsize=1024)  # nodes of one build ask the same
def _best(
    links: tuple[tuple[int, ...], ...], numa: tuple[int | None, ...], count: int
) -> tuple[_Cost, tuple[int, ...]]:
    """By places in the group; of equal sets the first."""
    size, whole = Counter(numa), [sum(row) for row in links]

    def judged(places: tuple[int, ...]) -> tuple[_Cost, tuple[int, ...]]:
        within = sum(links[a][b] for a, b in combinations(places, 2))
        nodes = {numa[p] for p in places}
        torn = sum(whole[p] for p in places) - 2 * within
        return (-within, len(nodes), torn, sum(size[n] for n in nodes) - count), places

    everywhere = range(len(numa))
    if comb(len(numa), count) <= _MOST_SETS:
        return min(map(judged, combinations(everywhere, count)))

    def grown(first: int) -> tuple[int, ...]:
        places = [first]
        while len(places) < count:
            places.append(
                min(
                    (p for p in everywhere if p not in places),
                    key=lambda p: (-sum(links[p][q] for q in places), numa[p] != numa[first], whole[p], p),
                )
            )
        return tuple(sorted(places))

    best = min(judged(grown(first)) for first in everywhere)
    while True:  # each round is better than the one before, or the last
        places = best[1]
        others = [p for p in everywhere if p not in places]
        swapped = (tuple(sorted({*places} - {out} | {new})) for out in places for new in others)
        better = min(map(judged, swapped))
        if better >= best:
            return best
        best = better
