"""Which cards a replica gets, against every other set that it could have got."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.wire.facts import GpuFacts, NvLink
from agent.wire.reason import Reason
from fleet.core import cards, sizes
from fleet.core.cards import Cards, Wish, choose

Box = tuple[Cards, frozenset[int]]


@st.composite
def boxes(draw: st.DrawFn, most: int = 8) -> Box:
    """Cards with any links between them, some taken, some broken, of up to two classes."""
    count = draw(st.integers(1, most))
    links: dict[int, list[NvLink]] = {n: [] for n in range(count)}
    for a, b in combinations(range(count), 2):
        if number := draw(st.sampled_from([0, 0, 2, 4])):
            links[a].append(NvLink(b, number))
            links[b].append(NvLink(a, number))
    found = tuple(
        GpuFacts(
            n,
            gpu_class=draw(st.sampled_from(["a40-45g", "a40-45g", "l4-22g"])),
            numa_node=draw(st.sampled_from([None, 0, 1])),
            nvlinks=tuple(links[n]),
            problem=draw(st.sampled_from([None, None, None, "it is gone"])),
        )
        for n in range(count)
    )
    return found, draw(st.frozensets(st.integers(0, count - 1)))


def between(found: Cards, devices: tuple[int, ...]) -> int:
    return sum(link.links for d in devices for link in found[d].nvlinks or () if link.peer in devices) // 2


def judged(found: Cards, free: set[int], devices: tuple[int, ...]) -> tuple[int, int, int, int]:
    """As people would say it: links within, NUMA nodes, links torn from free cards, free cards beside on the nodes."""
    nodes = {found[d].numa_node for d in devices}
    others = {f for f in free if found[f].gpu_class == found[devices[0]].gpu_class} - set(devices)
    torn = sum(link.links for d in devices for link in found[d].nvlinks or () if link.peer in others)
    beside = sum(found[f].numa_node in nodes for f in others)
    return -between(found, devices), len(nodes), torn, beside


@settings(max_examples=150, deadline=None, database=None)
@given(boxes(), st.integers(1, 5), st.sampled_from([None, "a40-45g"]))
def test_no_other_set_is_better(box: Box, count: int, gpu_class: str | None) -> None:
    found, taken = box
    free = {c.index for c in found if c.index not in taken and c.problem is None and gpu_class in (None, c.gpu_class)}
    sets = [s for s in combinations(sorted(free), count) if len({found[d].gpu_class for d in s}) == 1]
    chosen = choose(found, taken, Wish(count, gpu_class))
    if isinstance(chosen, Reason):
        assert not sets
        return
    assert chosen in sets  # in order, none twice, all free, usable and of one class
    assert judged(found, free, chosen) == min(judged(found, free, s) for s in sets)
    assert chosen == choose(tuple(found), set(taken), Wish(count, gpu_class))


@settings(max_examples=60, deadline=None, database=None)
@given(boxes(), st.integers(2, 4))
def test_more_free_cards_never_mean_less_nvlink(box: Box, count: int) -> None:
    found, taken = box
    few, many = choose(found, taken, Wish(count, "a40-45g")), choose(found, frozenset(), Wish(count, "a40-45g"))
    if not isinstance(few, Reason):
        assert not isinstance(many, Reason)
        assert between(found, many) >= between(found, few)


@pytest.mark.parametrize("count", [2, 4, 8, 12])
def test_sixteen_cards_take_a_bounded_time(count: int) -> None:
    """Eight pairs, each with a bridge, told in no order: the most difficult figure is 8 of 16."""
    pairs = {n: (n * 7 + 3) % 16 for n in range(0, 16, 2)}
    pairs |= {b: a for a, b in pairs.items()}
    found = tuple(GpuFacts(n, gpu_class="a40-45g", numa_node=n % 2, nvlinks=(NvLink(pairs[n], 4),)) for n in range(16))
    began = time.thread_time()
    chosen = choose(found, (), Wish(count))
    assert time.thread_time() - began < 1.0
    assert not isinstance(chosen, Reason)
    assert between(found, chosen) == 4 * (count // 2)


def test_what_was_chosen_is_told() -> None:
    plain = tuple(GpuFacts(n, gpu_class="a40-45g") for n in range(4))
    assert cards.told(plain, (1,)) == "GPU 1"
    assert cards.told(plain, (0, 1)) == "GPUs 0, 1 (whether NVLink joins them is not known)"
    known = tuple(replace(c, nvlinks=(), numa_node=c.index // 2) for c in plain)
    assert cards.told(known, (1, 2)) == "GPUs 1, 2 (no NVLink between them, NUMA nodes 0 and 1)"
    pair = (replace(known[0], nvlinks=(NvLink(1, 4),)), *known[1:])
    assert cards.told(pair, (0, 1)) == "GPUs 0, 1 (4 NVLinks between them, NUMA node 0)"
    assert "4 NVLinks between them, and not between all of them" in cards.told(pair, (0, 1, 2))
    assert "joined by NVSwitch" in cards.told(tuple(replace(c, switched=True) for c in known), (0, 3))


def test_the_reasons() -> None:
    mixed = (GpuFacts(0, gpu_class="a40-45g"), GpuFacts(1, gpu_class="l4-22g"))
    none = choose(mixed, (), Wish(2), node="n1")
    assert isinstance(none, Reason)
    assert (none.code, none.sentence) == (
        "gpus_mixed",
        "2 GPUs of one class are wanted, and n1 has 1 × a40-45g, 1 × l4-22g: a replica on cards of several classes "
        "would run as the slowest does",
    )
    taken = choose((*mixed, GpuFacts(2, gpu_class="a40-45g")), {0}, Wish(2), node="n1")
    assert isinstance(taken, Reason)
    assert taken.sentence == "2 GPUs of one class are wanted, and of n1's are free: 1 × a40-45g, 1 × l4-22g"


def test_memory_that_a_chip_shares_with_its_machine_is_not_held_by_others() -> None:
    """What programs take of it is the machine's memory, and is reckoned with there."""
    chip = GpuFacts(0, name="NVIDIA GB10", memory_bytes=120 * 2**30, memory_free_bytes=60 * 2**30)
    assert cards.foreign((chip,), ()) == {0: 60 * 2**30}
    assert cards.foreign((replace(chip, unified=True),), ()) == {}


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1.0, "0 s"),
        (45.4, "45 s"),
        (119.0, "119 s"),
        (1303.0, "21 min"),
        (7199.0, "119 min"),
        (7200.0, "2 h"),
        (9e5, "10 d"),
    ],
)
def test_times_are_told_as_exactly_as_people_want_them(seconds: float, words: str) -> None:
    assert sizes.span(seconds) == words
