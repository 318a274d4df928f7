"""What runs have shown here: taken down once a run, told with how sure it is, and used by placement."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from statistics import mean, stdev

import pytest
from django.core.management import call_command
from django.utils import timezone
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.wire.facts import GpuFacts
from agent.wire.shard import DeviceMemory, ShardState, Took
from fleet import models, passes, selectors
from fleet.actions import learning
from fleet.core.learned import Figure, told_bytes, told_s
from fleet.selectors import learned
from fleet.selectors.world import load_world
from tests.fleet.agents import FACTS, GIB
from tests.fleet.rows import beat, joined, link_is_up, seen, tiny, told


@settings(max_examples=30, deadline=None, database=None)
@given(st.lists(st.floats(0, 1e12), min_size=2, max_size=30))
def test_a_figure_is_that_of_all_its_runs(values: list[float]) -> None:
    figure = Figure()
    for value in values:
        figure = figure.added(value)
    assert (figure.n, figure.least, figure.most, figure.last) == (len(values), min(values), max(values), values[-1])
    assert figure.mean == pytest.approx(mean(values), rel=1e-6, abs=1e-3)
    assert figure.deviation == pytest.approx(stdev(values), rel=1e-4, abs=1e-2)


def test_how_sure_it_is_is_said() -> None:
    one = Figure().added(40.0)
    assert told_s(one) == "40.0 s (1 run)"
    assert told_s(one.added(44.0)) == "42.0 s (2 runs, ± 2.8 s)"
    assert told_bytes(Figure().added(3 * GIB)) == "3 GiB (1 run)"


@pytest.fixture
def _cluster(db: None) -> None:
    link_is_up()
    joined()


def run(memory: int = 3 * GIB, held: int = 2 * GIB, **model: object) -> None:
    """A replica that has served for five minutes."""
    tiny(**model)  # type: ignore[arg-type]
    passes.run()
    since = timezone.now().timestamp() - 300
    cards = (DeviceMemory(0, held),)
    spec = told()[0]
    models.Replica.objects.filter(state="starting").update(placed_at=timezone.now() - timedelta(seconds=49))
    beat(
        seen(spec, ShardState.READY, since=since, memory_bytes=memory, devices_memory=cards, took=Took(7.0, 30.0, 12.0))
    )


@pytest.mark.usefixtures("_cluster")
def test_a_run_is_taken_down_once() -> None:
    run()
    assert learning.note(timezone.now()) == 1
    assert learning.note(timezone.now()) == 0
    assert {row.kind: (row.n, row.mean) for row in models.Learned.objects.all()} == {
        "memory": (1, 3 * GIB),
        "gpu_memory": (1, 2 * GIB),
        "fetch": (1, 7.0),
        "start": (1, pytest.approx(42.0, abs=0.5)),
    }
    models.Shard.objects.update(observed_incarnation=2)
    assert learning.note(timezone.now()) == 1
    assert models.Learned.objects.get(kind="memory").n == 2
    assert learned.starts() == {"tiny": pytest.approx(42.0, abs=0.5)}


@pytest.mark.usefixtures("_cluster")
def test_who_waits_is_told_of_the_fetch_too() -> None:
    run()
    learning.note(timezone.now())
    models.Replica.objects.all().delete()
    passes.run()
    spec = told()[0]
    placed = models.Replica.objects.get().placed_at.timestamp()  # type: ignore[union-attr]
    for state, took, ends in (
        (ShardState.FETCHING, None, placed + 7 + 42),
        (ShardState.STARTING, Took(20.0), placed + 20 + 42),
        (ShardState.STARTING, Took(0.0), placed + 42),
    ):
        beat(seen(spec, state, took=took))
        assert selectors.model_states()["tiny"].ready_at == pytest.approx(ends, abs=1)


@pytest.mark.usefixtures("_cluster")
def test_what_has_only_just_begun_is_not() -> None:
    tiny()
    passes.run()
    beat(seen(told()[0], ShardState.READY, memory_bytes=GIB))
    assert learning.note(timezone.now()) == 0


@pytest.mark.usefixtures("_cluster")
def test_a_profile_that_says_nothing_gets_what_runs_have_taken() -> None:
    run(memory=20 * GIB)
    assert models.Shard.objects.get().memory_bytes == 0
    learning.note(timezone.now())
    run(minimum=2)
    assert sorted(models.Shard.objects.values_list("memory_bytes", flat=True)) == [0, 20 * GIB]
    assert load_world(timezone.now().timestamp()).shown
    run(minimum=3)
    assert "too little memory" in models.Replica.objects.get(state="pending").reason


@pytest.mark.usefixtures("_cluster")
def test_too_little_reserved_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    run(memory=3 * GIB, memory_bytes=GIB)
    learning.note(timezone.now())
    row = selectors.replica(models.Replica.objects.get().public_id)
    assert row["warnings"] == ["it takes 3 GiB of memory, and 1 GiB are reserved for it: raise min_memory_gb"]
    assert row["predicted"]["start"]["told"].startswith("42.")
    capsys.readouterr()
    call_command("replica", "show", row["replica"])
    out = capsys.readouterr().out
    assert "3 GiB of 1 GiB" in out
    assert "0:2 GiB" in out
    assert "start:         42." in out
    assert "warning: it takes 3 GiB" in out


def card(gib: int) -> GpuFacts:
    return GpuFacts(
        0, gpu_class=f"l4-{gib}g", memory_bytes=gib * GIB, memory_free_bytes=gib * GIB, compute_capability="8.9"
    )


@pytest.mark.usefixtures("_cluster")
def test_a_card_with_less_than_runs_have_taken_is_passed_over_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    joined(facts=replace(FACTS, gpus=(card(24),)))
    run(gpus=1, held=20 * GIB)
    learning.note(timezone.now())
    joined("n2", facts=replace(FACTS, gpus=(card(16),)))
    run(gpus=1, minimum=2, held=20 * GIB)
    assert models.Replica.objects.get(state="pending").reason == (
        "no node can take it: 1 × cards too small, 1 × GPUs taken"
    )
    capsys.readouterr()
    call_command("explain-placement", "tiny")
    out = capsys.readouterr().out
    assert "1 run here took up to 20 GiB of each card, and n2's l4-16g has 16 GiB: a shorter context takes less" in out
    assert "to change that:\n  llmgw model context tiny TOKENS\n" in out
    assert "measured here with profile cpu on l4-24g: gpu memory 20 GiB (1 run)" in out.replace(
        "fetch 7.0 s (1 run), ", ""
    )
    joined("n3", facts=replace(FACTS, gpus=(card(48),)))
    joined("n4", facts=replace(FACTS, gpus=(card(32),)))
    passes.run()
    assert set(models.Claim.objects.values_list("node__node_id", flat=True)) == {"n1", "n4"}
