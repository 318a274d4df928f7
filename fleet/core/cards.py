"""Which of a node's cards a replica gets: those with the most NVLink between them. Pure.

Among sets with as much NVLink those on the fewest NUMA nodes win, then those whose loss costs others least: pairs that
a bridge joins, and NUMA nodes that are all free, are left whole. All cards of a set are of one class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb

from agent.wire.facts import GpuFacts, NodeFacts, device_name
from agent.wire.occupancy import counts, held_bytes
from agent.wire.reason import Reason
from agent.wire.shard import Profile
from fleet.core.learned import Takes
from fleet.core.sizes import gib

Cards = tuple[GpuFacts, ...]

_MOST_SETS = 2500
"""Sets that are all compared (four of sixteen cards are 1820); of more the best is searched for, and may be missed."""


def of(facts: NodeFacts) -> Cards | None:
    """The node's cards in their order; None where nobody knows."""
    return None if facts.gpus is None else tuple(sorted(facts.gpus, key=lambda c: c.index))


@dataclass(frozen=True, slots=True)
class Wish:
    """The cards that one rank asks of its node: of a class, or at least so capable and so large, or any."""

    count: int
    gpu_class: str | None = None
    min_capability: float | None = None
    min_memory_bytes: int | None = None
    takes: Takes | None = None
    """What runs here have taken of a card: as binding as what is asked, and left out of its words."""

    @property
    def required(self) -> bool:
        """By requirement: the smallest class that meets it goes first."""
        return self.min_capability is not None or self.min_memory_bytes is not None or self.takes is not None

    def __str__(self) -> str:
        """`2 h100-80g GPUs`, `1 GPU of compute capability 8.9 and 40.0 GiB`."""
        least = [f"compute capability {self.min_capability:g}"] if self.min_capability is not None else []
        least += [gib(self.min_memory_bytes)] if self.min_memory_bytes is not None else []
        kind = f"{self.gpu_class} " if self.gpu_class else ""
        return f"{self.count} {kind}GPU{'' if self.count == 1 else 's'}" + (
            f" of at least {' and '.join(least)}" if least else ""
        )

    def meets(self, card: GpuFacts) -> bool:
        """What is asked, and what it is known to take."""
        return self.asks(card) and (self.takes is None or self.takes.fits(kind(card), card.memory_bytes))

    def asks(self, card: GpuFacts) -> bool:
        """A card that does not say what it is meets no requirement."""
        if self.gpu_class not in (None, card.gpu_class):
            return False
        if self.min_memory_bytes is not None and (card.memory_bytes or 0) < self.min_memory_bytes:
            return False
        return self.min_capability is None or capability(card) >= _version(f"{self.min_capability:g}")


def wish(run: Profile, takes: Takes | None = None) -> Wish:
    """What a profile asks; `takes`: what its runs have shown."""
    return Wish(run.gpus, run.gpu_class, run.gpu_min_capability, run.gpu_min_memory_bytes, takes)


def capability(card: GpuFacts) -> tuple[int, int]:
    """(8, 9); (0, 0) where nobody knows."""
    return _version(card.compute_capability or "0")


def _version(words: str) -> tuple[int, int]:
    major, _, minor = words.partition(".")
    return (int(major), int(minor or 0)) if major.isdigit() and (minor or "0").isdigit() else (0, 0)


def kind(card: GpuFacts) -> str:
    """Its class, else its name."""
    return card.gpu_class or card.name or "unknown"


def foreign(cards: Cards, claimed: Collection[int]) -> dict[int, int]:
    """By device: the bytes that programs hold which are not ours, on cards that none of ours has. Said at the moment of
    a report: what was measured while one of ours had the card says nothing once it is gone. A card that computes in the
    machine's own memory is left to the check of that memory."""
    found = {}
    for card in cards:
        if card.unified or card.index in claimed:
            continue
        held = held_bytes(card.memory_bytes, card.memory_free_bytes, (h.memory_bytes for h in card.holders or ()))
        if counts(held, card.memory_bytes):
            found[card.index] = held
    return found


def choose(
    cards: Cards, taken: Collection[int], wish: Wish, node: str = "the node", held: Mapping[int, int] | None = None
) -> tuple[int, ...] | Reason:
    """The devices for one rank, in their order; or why there are not enough. `held`: see `foreign`."""
    match groups(cards, taken, wish, node, held):
        case Reason() as reason:
            return reason
        case found:
            return min((smallness(g[0]) if wish.required else (), *_best_of(g, wish.count)) for g in found)[-1]


def best(group: Cards, count: int) -> tuple[int, ...]:
    """The devices of a group of one class that a rank gets, in their order."""
    return _best_of(group, count)[-1]


def smallness(card: GpuFacts) -> tuple[int, tuple[int, int]]:
    """The smaller card comes first: less memory, then the older chip."""
    return card.memory_bytes or 0, capability(card)


def groups(
    cards: Cards, taken: Collection[int], wish: Wish, node: str, held: Mapping[int, int] | None = None
) -> tuple[Cards, ...] | Reason:
    """The free cards of each class that has enough of them."""
    count, held = wish.count, held or {}
    fitting = [c for c in cards if wish.meets(c)]
    usable = [c for c in fitting if c.problem is None]
    if len(usable) < count <= len(fitting):
        bad = next(c for c in fitting if c.problem is not None)
        return Reason("gpu_unusable", f"{node}'s GPU {device_name(bad.index)} cannot be used: {bad.problem}")
    fitting = usable
    if count > 1 and any(c.mig_profile for c in fitting):
        whole = [c for c in fitting if not c.mig_profile]
        if len(whole) < count and wish.gpu_class is not None:
            return Reason("mig_one", "a replica runs on one MIG instance: instances have no link between them")
        fitting = whole
    if len(fitting) < count:
        found = ", ".join(sorted(set(map(_described if wish.required else kind, cards)))) or "none"
        are = "is" if count == 1 else "are"
        return Reason("gpu_class", f"{wish} {are} wanted, and {node} has {len(fitting)} (its GPUs: {found})")
    kinds = Counter(map(kind, fitting))
    if max(kinds.values(), default=0) < count:
        return Reason(
            "gpus_mixed",
            f"{count} GPUs of one class are wanted, and {node} has {_counted(kinds)}: a replica on cards of several "
            "classes would run as the slowest does",
        )
    idle = [c for c in fitting if c.index not in taken]
    free = [c for c in idle if c.index not in held]
    large = tuple(tuple(c for c in free if kind(c) == k) for k in kinds if sum(kind(c) == k for c in free) >= count)
    if large:
        return large
    if len(free) < len(idle) and max(Counter(map(kind, idle)).values()) >= count:
        bad = next(c for c in idle if c.index in held)
        what = f"{gib(held[bad.index])} of {node}'s GPU {device_name(bad.index)}"
        pids = ", ".join(str(h.pid) for h in bad.holders or ())
        who = f" (process {pids})" if pids else ""
        return Reason("gpu_foreign", f"programs that are not ours hold {what}{who}", f"llmgw node show {node}")
    are = "is" if count == 1 else "are"
    if len(free) < count:
        return Reason("gpus_taken", f"{wish} {are} wanted, and {len(free)} of {node}'s {len(fitting)} are free")
    left = _counted(Counter(map(kind, free)))
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


def _described(card: GpuFacts) -> str:
    size = gib(card.memory_bytes) if card.memory_bytes is not None else "unknown size"
    return f"{kind(card)} of compute capability {card.compute_capability or 'unknown'} and {size}"


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
