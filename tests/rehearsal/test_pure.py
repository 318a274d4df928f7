"""Pretended weeks: queues against arithmetic, the planner over a week, and what must hold at every look."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.rehearsal.hardware import TEMPLATES, Wish, facts
from agent.wire.shard import Profile
from catalog.core.definition import Definition, ProfileDefinition, Scaling
from fleet.core.world import NodeView, WantedModel, World
from llmgw.cluster.core.sections import FacilitySettings, PlaceOptions
from llmgw.cluster.errors import Invalid
from llmgw.rehearsal import pretended_week, worldfile
from llmgw.rehearsal.pure.measured import Timed
from llmgw.rehearsal.pure.measured import pace as measured_pace
from llmgw.rehearsal.pure.queue import Pace, Queue
from llmgw.rehearsal.pure.report import report
from llmgw.rehearsal.pure.shape import DAY_S, HOUR_S, Ask, Curve, asks
from llmgw.rehearsal.pure.week import Found, Happening, Rules, Week

BEGIN = pretended_week.BEGIN
PACE = Pace(start_s=30.0, prompt_token_s=0.001, step_s=0.02, beside=0.0)
WEEK = Path(__file__).resolve().parent.parent.parent / "docs" / "rehearsal" / "week.yaml"


def test_a_queue_by_hand() -> None:
    queue = Queue(patience_s=5.0, limit=2)
    queue.begin("r", 1, PACE, 0.0)
    whole = PACE.whole(100, 50, 1)
    assert whole == pytest.approx(1.1)
    for at in (0.0, 0.1, 0.2, 0.3):
        queue.ask(Ask(at, "m", 100, 50))
    queue.at(10.0)
    served = queue.served
    assert (served.asked, served.answered, served.refused) == (4, 3, 1)
    first = PACE.first(100)
    assert served.ttft_s == pytest.approx([first, first + whole - 0.1, first + 2 * whole - 0.2])


def test_who_waits_too_long_is_refused_and_a_new_replica_serves_from_its_birth() -> None:
    queue = Queue(patience_s=20.0, limit=10)
    queue.ask(Ask(0.0, "m", 1, 1))
    queue.ask(Ask(15.0, "m", 1, 1))
    queue.begin("r", 4, PACE, 30.0)
    queue.at(40.0)
    assert queue.served.refused == 1
    assert queue.served.ttft_s[0] == pytest.approx(15.0 + PACE.first(1))


def test_a_lost_replica_takes_its_answers_with_it() -> None:
    queue = Queue(20.0, 10)
    queue.begin("r", 4, PACE, 0.0)
    queue.ask(Ask(0.0, "m", 1, 500))
    queue.end("r", 1.0, lost=True)
    assert queue.served.refused == 1


def test_a_week_has_its_shape_and_is_the_same_again() -> None:
    curve = {"m": Curve(0.1, prompt=200, answer=80)}
    found = list(asks(curve, BEGIN, 7 * DAY_S, UTC, seed=3))
    assert found == list(asks(curve, BEGIN, 7 * DAY_S, UTC, seed=3))
    assert [a.at for a in found] == sorted(a.at for a in found)
    busy = sum(datetime.fromtimestamp(a.at, UTC).hour == 14 for a in found)
    night = sum(datetime.fromtimestamp(a.at, UTC).hour == 2 for a in found)
    assert busy > 4 * night > 0
    assert 150 < sum(a.prompt for a in found) / len(found) < 250


def test_a_pace_is_found_again_in_what_was_measured() -> None:
    timed = [Timed(p, 50, 0.2 + p * 0.002 + 0.03, 49 * 0.03) for p in range(10, 1000, 10)]
    found = measured_pace(timed, 12.0)
    assert found is not None
    assert (found.step_s, found.prompt_token_s, found.first_s) == pytest.approx((0.03, 0.002, 0.2), abs=1e-6)
    assert measured_pace(timed[:5], 12.0) is None


def model(name: str, scaling: Scaling, gpus: int = 1, priority: int = 100) -> WantedModel:
    run = Profile("gpu", "vllm", gpus=gpus, gpu_class="l40s-45g", parallel=4)
    return WantedModel(Definition(name, f"path:/{name}", (ProfileDefinition(run, priority=priority),), scaling=scaling))


def nodes(count: int) -> tuple[NodeView, ...]:
    template = TEMPLATES["l40sx4"]
    wishes = [Wish(f"n{n}", f"127.64.0.{n + 1}", {}, engines=("vllm",)) for n in range(count)]
    return tuple(NodeView(w.id, facts(template, w)) for w in wishes)


def run(wanted: list[WantedModel], found: list[Ask], hours: float, happen: list[Happening], count: int = 2) -> Found:
    week = Week(World(nodes(count)), wanted, lambda *a: PACE, Rules(), happen)
    return week.run(found, BEGIN, hours * HOUR_S)


def test_a_lost_node_costs_what_ran_and_comes_back() -> None:
    stream = [Ask(BEGIN + 60 + n, "m", 10, 20) for n in range(3000)]
    happen = [Happening(BEGIN + 600, "lost", "n0"), Happening(BEGIN + 1800, "back", "n0")]
    found = run([model("m", Scaling(2, 2), gpus=4)], stream, 1.0, happen)
    assert not found.broken
    served = found.served["m"]
    assert served.answered + served.refused == served.asked == 3000
    assert served.refused <= 4
    assert found.starts["m"] == 3  # two, and again where the node came back
    assert sum(found.gpu_hours.values()) == pytest.approx(4 + 4 * 40 / 60, rel=0.05)


def test_on_demand_is_started_by_the_first_and_stopped_when_idle() -> None:
    found = run([model("m", Scaling(0, 1, idle_timeout_s=300))], [Ask(BEGIN + 600, "m", 10, 20)], 1.0, [])
    assert found.starts["m"] == 1
    assert found.served["m"].ttft_s[0] > PACE.start_s
    assert sum(found.gpu_hours.values()) < 0.2


def test_load_makes_replicas_more_and_fewer() -> None:
    storm = [Ask(BEGIN + 300 + n / 4, "m", 200, 100) for n in range(4800)]
    few = run([model("m", Scaling(1, 1))], storm, 1.0, [])
    many = run([model("m", Scaling(1, 6))], storm, 1.0, [])
    assert many.served["m"].refused < few.served["m"].refused
    one, other = report(few, {"l40s": 1.0}), report(many, {"l40s": 1.0})
    assert one.cost is not None
    assert other.cost is not None
    assert one.cost < other.cost
    assert sum(many.gpu_hours.values()) < 6


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    scalings=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=4),
    rates=st.lists(st.floats(0.001, 0.5), min_size=4, max_size=4),
    losses=st.lists(st.tuples(st.floats(0, 2), st.floats(0.1, 1), st.integers(0, 2)), max_size=4),
    seed=st.integers(0, 1000),
)
def test_nothing_breaks_whatever_comes(
    scalings: list[tuple[int, int, int]], rates: list[float], losses: list[tuple[float, float, int]], seed: int
) -> None:
    wanted = [
        model(f"m{n}", Scaling(least, least + more, idle_timeout_s=120), gpus)
        for n, (least, more, gpus) in enumerate(scalings)
    ]
    curves = {w.name: Curve(rates[n], 50, 30, night=1.0, weekend=1.0) for n, w in enumerate(wanted)}
    happen: list[Happening] = []
    away: dict[str, float] = {}
    for at, hours, node in sorted(losses):
        name = f"n{node}"
        if away.get(name, -1.0) < at:
            away[name] = at + hours
            happen.append(Happening(BEGIN + at * HOUR_S, "lost", name))
            happen.append(Happening(BEGIN + (at + hours) * HOUR_S, "back", name))
    stream = list(asks(curves, BEGIN, 2 * HOUR_S, UTC, seed))
    found = run(wanted, stream, 2.5, happen, count=3)
    assert not found.broken
    for served in found.served.values():
        assert served.answered <= served.asked
        assert len(served.ttft_s) == served.answered
        assert all(t > 0 for t in served.ttft_s)


def test_a_power_cap_holds_over_a_week_of_load() -> None:
    """Two copies of four cards fit, and one may draw: 4 × 350 W and what the nodes draw besides."""
    racked = tuple(replace(n, labels={"llmgw.io/rack": "a"}) for n in nodes(2))
    caps = FacilitySettings(racks={"a": PlaceOptions(power_cap_w=3000)})
    storm = [Ask(BEGIN + 300 + n / 4, "m", 200, 100) for n in range(4800)]
    week = Week(World(racked, facility=caps), [model("m", Scaling(1, 2), gpus=4)], lambda *a: PACE, Rules())
    found = week.run(storm, BEGIN, 2 * HOUR_S)
    assert not found.broken
    assert sum(found.gpu_hours.values()) == pytest.approx(8, rel=0.02)
    week = Week(World(racked), [model("m", Scaling(1, 2), gpus=4)], lambda *a: PACE, Rules())
    assert sum(week.run(storm, BEGIN, 2 * HOUR_S).gpu_hours.values()) > 9


def test_the_example_week_holds() -> None:
    raw = yaml.safe_load(WEEK.read_text())
    for entry in raw["models"]:
        entry["demand"]["rate"] /= 20
    told = pretended_week.play(worldfile.read(raw), days=1.0, losses=2, look_s=20.0)
    assert told["held"]
    assert told["week"]["requests"] > 1000
    assert {m["model"] for m in told["models"]} == {"chat", "code", "rare"}


def test_a_world_that_nobody_asks_has_no_week() -> None:
    world = worldfile.read({"nodes": [{"template": "laptop"}]})
    with pytest.raises(Invalid, match="how it is asked for"):
        pretended_week.play(world)


def test_a_cost_is_unknown_where_a_class_has_none() -> None:
    found = Found(gpu_hours={"h200-140g": 2.0, "l40s-45g": 1.0})
    assert report(found, {"h200": 3.0}).cost is None
    assert report(found, {"h200": 3.0, "l40s": 1.0}).cost == pytest.approx(7.0)
    assert report(replace_hours(found, {"h200-140g-mig-1g.18gb": 7.0}), {"h200": 3.0, "h200-140g-mig": 0.5}).cost == 3.5


def replace_hours(found: Found, hours: dict[str, Any]) -> Found:
    return replace(found, gpu_hours=hours)
