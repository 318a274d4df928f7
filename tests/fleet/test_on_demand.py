"""Models that load when somebody asks, on rows: what the edges' words bring about, what outlives them, what is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from agent.wire.shard import ShardState
from catalog import selectors as catalog
from catalog.actions import models as catalog_actions
from catalog.models import Model
from fleet import listening, models, nudges, passes, selectors
from fleet.actions import asking, learning, rollout
from fleet.core.learned import KEPT
from fleet.core.world import Demand
from fleet.selectors import demand as reading
from fleet.selectors import telling
from fleet.selectors.world import load_world
from gateway.control import parts
from llmgw import demand as words
from llmgw.cluster.actions import settings as cluster_settings
from tests.fleet.agents import FACTS
from tests.fleet.rows import beat, joined, link_is_up, seen, tiny, told

pytestmark = pytest.mark.django_db
NODE = replace(FACTS, cpu_count=1)
"""Room for one model that wants a core."""


@pytest.fixture(autouse=True)
def _one_card(db: None) -> Iterator[None]:
    asking._written.clear()
    link_is_up()
    joined(facts=NODE)
    cluster_settings.put(path="fleet.swap_min_residence_s", value=0, actor="test")
    cluster_settings.put(path="fleet.swap_idle_s", value=0, actor="test")
    silent()
    yield
    silent()


def on_demand(name: str, **scaling: Any) -> None:
    tiny(name=name)
    row = Model.objects.get(name=name)
    row.definition["scaling"] = {"min": 0, "max": 1, **scaling}
    row.save()


def say(edge: str = "edge-1", leaving: dict[str, int] | None = None, **asked: words.Asked) -> None:
    """As an edge does each second."""
    client = nudges.client()
    client.hset(words.EDGES, edge, "{}")
    client.set(words.KEY + edge, words.encode(words.Word(asked, leaving or {})), ex=words.EXPIRES_S)


def silent() -> None:
    client = nudges.client()
    client.delete(words.EDGES, *client.scan_iter(f"{words.KEY}*"))


WAITS = words.Asked(waiting=1, unserved_s=0.1, asked_s=0.1)


def served(name: str) -> models.Replica:
    """Asked for, started, ready."""
    say(**{name: WAITS})
    passes.run()
    row = models.Replica.objects.get(model=name)
    beat(seen(next(s for s in told() if s.model == name), ShardState.READY))
    say(**{name: words.Asked(asked_s=0.5)})
    row.refresh_from_db()
    return row


def test_one_that_is_replaced_finishes_what_it_has_begun_and_one_that_is_stopped_does_not() -> None:
    on_demand("alpha", min=1)
    old = served("alpha")
    rollout.restart(name="alpha", actor="test")
    passes.run()
    old.refresh_from_db()
    assert old.state == "draining"
    models.Replica.objects.update(state_since=timezone.now() - timedelta(seconds=60))
    say(leaving={old.public_id: 1})
    passes.run()
    old.refresh_from_db()
    assert old.state == "draining"
    catalog_actions.stop(name="alpha", actor="test")
    passes.run()
    old.refresh_from_db()
    assert old.state == "stopping"


def test_a_swap_from_the_first_request_to_the_other_model_ready() -> None:
    on_demand("alpha")
    on_demand("beta")
    passes.run()
    assert not models.Replica.objects.exists()
    assert selectors.model_states()["alpha"].state == "idle"

    alpha = served("alpha")
    assert alpha.state == "ready"
    assert "alpha" in selectors.starts()
    say(alpha=words.Asked(in_flight=1, asked_s=0.0), beta=WAITS)
    passes.run()
    beta = models.Replica.objects.get(model="beta")
    assert (beta.state, beta.held_by, beta.reason_code) == ("pending", "alpha", "waits_for_card")
    state = selectors.model_states()["beta"]
    assert (state.state, state.held_by) == ("waiting", "alpha")
    assert telling.model("beta")[0].sentence.endswith("it waits for a card that alpha holds: it is in use")
    waits = {r.code: r.sentence for r in telling.model("beta")}
    assert waits["runs"].startswith(f"alpha's {alpha.public_id} on n1 is ready for ")
    assert waits["holder"] == "alpha is in use: 1 request is answered now, and 0 wait"
    row = next(r for r in catalog.models() if r["name"] == "beta")
    assert (row["state"], row["held_by"], row["on_demand"]) == ("waiting", "alpha", True)
    entry = parts.models().models["beta"]
    assert (entry.state, entry.held_by, entry.on_demand) == ("waiting", "alpha", True)

    say(alpha=words.Asked(asked_s=0.5), beta=WAITS)
    passes.run()
    alpha.refresh_from_db()
    beta.refresh_from_db()
    assert (alpha.state, alpha.reason_code, beta.reason_code) == ("draining", "evicted", "gets_card")
    say(leaving={alpha.public_id: 1}, alpha=words.Asked(in_flight=1, asked_s=0.5), beta=WAITS)
    passes.run()
    alpha.refresh_from_db()
    assert alpha.state == "draining", "it ends what it has begun"
    say("edge-2")
    say(leaving={alpha.public_id: 0}, beta=WAITS)
    passes.run()
    alpha.refresh_from_db()
    assert alpha.state == "draining", "not every edge knows yet that it goes"
    say("edge-2", {alpha.public_id: 0})
    passes.run()
    alpha.refresh_from_db()
    assert alpha.state == "stopping"
    beat()
    passes.run()
    assert not models.Replica.objects.filter(model="alpha").exists()
    beta.refresh_from_db()
    assert (beta.state, beta.held_by, beta.free_at) == ("starting", "", None)
    beat(seen(told()[0], ShardState.READY))
    passes.run()
    assert not models.Replica.objects.filter(model="alpha").exists(), (
        "nobody waits for it: it does not take its card back"
    )

    lines = [e["reason"] for e in selectors.events(replica=alpha.public_id)]
    assert lines[0].startswith("it gives up its card to beta: nobody asked for it in")
    lines = [e["reason"] for e in selectors.events(replica=beta.public_id)]
    assert any(
        line.startswith(f"it gets the card of alpha ({alpha.public_id}): nobody asked for alpha") for line in lines
    )
    gone = telling.replica(alpha.public_id)
    assert gone[0].code == "ended"
    assert "it gives up its card to beta" in gone[0].sentence
    idle = telling.model("alpha")
    assert idle[0].code == "idle"
    assert [r.code for r in idle][1:] == ["last_asked", "start_takes", "gave_up"]
    assert idle[0].command == "llmgw scale alpha --min 1"
    assert idle[-1].code == "gave_up"


def test_what_runs_is_told_with_when_it_idles_and_when_it_is_stopped() -> None:
    on_demand("alpha", idle_timeout_s=9000.0)
    say(alpha=WAITS)
    passes.run()
    coming = telling.model("alpha")
    assert coming[0].sentence == "alpha does not serve yet: it is starting"
    assert coming[1].sentence.split(" on ")[1].startswith("n1 is starting for ")
    assert coming[-1].code == "asked"
    alpha = models.Replica.objects.get()
    beat(seen(told()[0], ShardState.READY))
    models.ReplicaEvent.objects.create(replica="", model="alpha", state="scaled", reason="from 1 to 2 replicas: x")
    say(alpha=words.Asked(in_flight=2, asked_s=0.0))
    busy = {r.code: r for r in telling.model("alpha")}
    assert busy["in_use"].sentence == "it is in use: 2 requests are answered now, and 0 wait"
    assert busy["runs"].command == f"llmgw why {alpha.public_id}"
    assert "its load moved it from 1 to 2 replicas" in busy["scaled"].sentence
    models.LastAsked.objects.all().delete()
    say(alpha=words.Asked(asked_s=3000.0))
    idle = {r.code: r for r in telling.model("alpha")}
    assert idle["idle_since"].sentence.startswith("nobody has asked for it for 50 min: it is stopped in 100 min, at ")
    assert idle["idle_since"].command == "llmgw scale alpha --min 1"


def test_it_is_told_apart_why_a_model_does_not_run() -> None:
    on_demand("alpha")
    tiny(0, name="off")
    on_demand("halted")
    Model.objects.filter(name="halted").update(stopped=True)
    passes.run()
    states = {name: state.state for name, state in selectors.model_states().items()}
    assert states == {"alpha": "idle", "off": "not_running", "halted": "stopped"}
    say(alpha=words.Asked(), off=WAITS, halted=WAITS)
    passes.run()
    assert not models.Replica.objects.exists()


def test_when_somebody_last_asked_outlives_redis_and_the_process() -> None:
    on_demand("alpha", idle_timeout_s=60.0)
    alpha = served("alpha")
    passes.run()
    silent()
    found = reading.read(time.time())
    assert not found.heard
    assert found.demand["alpha"].last_asked == pytest.approx(time.time(), abs=5)
    models.LastAsked.objects.update(at=timezone.now() - timedelta(seconds=100))
    passes.run()
    alpha.refresh_from_db()
    assert alpha.state == "ready", "no gateway was heard: nobody knows whether it is in use"
    say()
    passes.run()
    alpha.refresh_from_db()
    assert (alpha.state, alpha.reason_code) == ("draining", "not_asked")


def test_asks_are_written_seldom() -> None:
    now = time.time()
    for seconds in range(25):
        asking.asked({"alpha": Demand(last_asked=now + seconds)})
    assert models.LastAsked.objects.get().at.timestamp() == pytest.approx(now + 20)
    assert models.AskedHour.objects.count() in (1, 2)
    asking._written.clear()
    asking.asked({"alpha": Demand(last_asked=now - 500)})
    assert models.LastAsked.objects.get().at.timestamp() == pytest.approx(now + 20), "never back"


def test_edges_words_add_up_and_odd_ones_do_no_harm() -> None:
    say("edge-1", alpha=words.Asked(1, 2, 5.0, 3.0))
    say("edge-2", alpha=words.Asked(2, 0, 9.0, 1.0), beta=words.Asked(in_flight=1))
    nudges.client().hset(words.EDGES, "edge-3", "{}")
    nudges.client().set(words.KEY + "edge-3", b"\xff{", ex=5)
    now = time.time()
    found = reading.read(now)
    alpha = found.demand["alpha"]
    assert found.heard
    assert (alpha.waiting, alpha.in_flight, alpha.waiting_since) == (3, 2, pytest.approx(now - 9))
    assert alpha.last_asked == pytest.approx(now - 1)
    assert found.demand["beta"].last_asked is None


def test_starts_are_learned_from_the_last_few() -> None:
    on_demand("alpha")
    alpha = served("alpha")
    for seconds in (10, 20, 30, 40, 50, 60):
        models.Replica.objects.update(placed_at=timezone.now() - timedelta(seconds=seconds))
        alpha.refresh_from_db()
        learning.started(alpha, timezone.now())
    assert len(models.Learned.objects.get(kind="start").recent) == KEPT
    assert selectors.starts()["alpha"] == pytest.approx(40, abs=1)
    assert parts.models().models["alpha"].start_s == pytest.approx(40, abs=1)


def test_it_is_loaded_ahead_of_its_hour_where_there_is_room_and_nothing_goes_for_it() -> None:
    on_demand("alpha", prewarm_weekly=True)
    on_demand("beta")
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    for weeks in (1, 2):
        models.AskedHour.objects.create(model="alpha", hour=hour - timedelta(weeks=weeks))
    say()
    passes.run()
    alpha = models.Replica.objects.get(model="alpha")
    beat(seen(told()[0], ShardState.READY))
    say(beta=WAITS)
    passes.run()
    alpha.refresh_from_db()
    assert alpha.state == "draining", "whoever asks goes first"
    say(leaving={alpha.public_id: 0}, beta=WAITS)
    passes.run()
    beat()
    passes.run()
    beat(seen(told()[0], ShardState.READY))
    say(beta=words.Asked(asked_s=100.0))
    for _ in range(3):
        passes.run()
    assert {r.model for r in models.Replica.objects.all()} == {"beta"}, "nothing goes for what nobody asked for yet"
    assert load_world(time.time()).expected == {"alpha"}


def test_a_first_request_makes_a_pass_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = threading.Event()
    monkeypatch.setattr(passes, "run", ran.set)
    threading.Thread(target=listening._run, daemon=True).start()
    deadline = time.monotonic() + 5
    while not ran.is_set() and time.monotonic() < deadline:
        nudges.client().publish(words.CHANNEL, "edge-1")
        ran.wait(0.1)
    assert ran.is_set()
