"""llama.cpp's slots on paper do what real ones do, and show what decides there whether a text is found again."""

from __future__ import annotations

import json
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from statistics import mean

import pytest

from bench.edge import KEY
from bench.routing import paper, workload
from bench.routing.replicas import MODEL, PARALLEL, engine
from bench.routing.simulator import cached_share, mean_ttft
from bench.routing.slots import SIMILARITY, Slots, common, prompt

RECOMMENDED = 0.7


def read(slots: Slots, text: str, now: float) -> int:
    slot, cached = slots.take(text)
    slots.give_back(slot, now)
    return cached


@pytest.mark.parametrize(("one", "other", "shared"), [("", "a", 0), ("ab", "ab", 2), ("abc", "abd", 2), ("b", "ab", 0)])
def test_what_is_common(one: str, other: str, shared: int) -> None:
    assert common(one, other) == common(other, one) == shared


def test_those_who_share_a_beginning_overwrite_one_another() -> None:
    """Though a slot is empty beside them; above the threshold each keeps its own."""
    one, other = "s" * 1000 + "1" * 600, "s" * 1000 + "2" * 600
    texts = [one, other, one + "3" * 100, other + "4" * 100]
    plain = Slots(2)
    assert [read(plain, text, now) for now, text in enumerate(texts)] == [0, 1000, 1000, 1000]
    apart = Slots(2, RECOMMENDED)
    assert [read(apart, text, now) for now, text in enumerate(texts)] == [0, 0, 1600, 1600]


def test_another_beginning_sends_the_old_one_to_the_host_cache() -> None:
    slots = Slots(1)
    assert [read(slots, sign * 500, now) for now, sign in enumerate("abab")] == [0, 0, 499, 499]
    bare = Slots(1, host=False)
    assert [read(bare, sign * 500, now) for now, sign in enumerate("abab")] == [0, 0, 0, 0]


def test_long_beginnings_are_found_more_often_above_the_threshold() -> None:
    drawn = [workload.lab(seed=seed) for seed in paper.SEEDS]
    before, after = paper.slots(drawn, SIMILARITY, 4), paper.slots(drawn, RECOMMENDED, 4)
    assert mean(map(cached_share, after)) > mean(map(cached_share, before)) + 0.03
    assert mean(map(mean_ttft, after)) < 0.9 * mean(map(mean_ttft, before))
    assert mean(map(cached_share, after)) > mean(map(cached_share, paper.slots(drawn, RECOMMENDED, 1))) + 0.015


@pytest.mark.slow
@pytest.mark.parametrize("similarity", [SIMILARITY, RECOMMENDED])
def test_a_real_server_finds_the_same(tmp_path: Path, similarity: float) -> None:
    slots = Slots(PARALLEL, similarity)
    with ExitStack() as stack:
        port = engine(KEY, tmp_path / "log", stack, similarity)
        for number, turn in enumerate(workload.lab(3)[:28]):
            body = turn.body(MODEL, stream=False)
            asked = urllib.request.Request(
                f"http://127.0.0.1:{port}/v1/chat/completions",
                body,
                {"authorization": f"Bearer {KEY}", "content-type": "application/json"},
            )
            with urllib.request.urlopen(asked, timeout=20) as answer:
                usage = json.load(answer)["usage"]
            text = prompt(body)
            found = usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"]
            assert found == pytest.approx(read(slots, text, number) / len(text), abs=0.03), f"{turn.session} {number}"
