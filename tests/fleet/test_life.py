"""What people ask of a served model: other numbers, fresh replicas. Over rows, by command and API."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from django.core.management import call_command

from agent.wire.facts import NodeFacts
from agent.wire.shard import ShardState
from catalog import selectors as catalog
from catalog.actions import life
from catalog.actions import models as catalog_actions
from catalog.core.reading import read
from fleet import models, passes
from fleet.actions import rollout
from fleet.bootstrap import store_id
from fleet.link import orders
from llmgw.cluster.actions import settings
from llmgw.cluster.errors import Conflict, Invalid
from llmgw.cluster.models import AuditEntry
from tests.fleet import rows
from tests.fleet.agents import FACTS

pytestmark = pytest.mark.django_db
GIB = 1024**3


def states() -> list[tuple[str, str]]:
    return [(r.public_id, r.state) for r in models.Replica.objects.order_by("id")]


def ready() -> None:
    """What the node was told to run serves."""
    rows.beat(*(rows.seen(spec, ShardState.READY) for spec in rows.told()))


def scaling(**fields: Any) -> None:
    row = catalog.Model.objects.get(name="tiny")
    row.definition = {**row.definition, "scaling": {**row.definition["scaling"], **fields}}
    row.save()


def test_scaled_by_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    rows.tiny()
    call_command("scale", "tiny", "--min", "3")
    assert capsys.readouterr().out == "tiny: scaled to 3 replicas\n"
    call_command("scale", "TINY", "--max", "5", "--json")
    assert json.loads(capsys.readouterr().out)["max"] == 5
    call_command("scale", "tiny", "--max", "2")
    assert capsys.readouterr().out == "tiny: scaled to 2 replicas\n"
    assert AuditEntry.objects.filter(action="model.scale").count() == 3


def test_a_stopped_model_starts_at_that_number(capsys: pytest.CaptureFixture[str]) -> None:
    rows.tiny()
    catalog_actions.stop(name="tiny", actor="test")
    call_command("scale", "tiny", "--min", "2")
    assert capsys.readouterr().out == "tiny: scaled to 2 replicas and started\n"
    assert not catalog.entry("tiny").stopped


def test_what_cannot_be_scaled() -> None:
    rows.tiny()
    declared = {
        "name": "declared",
        "source": "starter:tiny",
        "profiles": [{"name": "cpu", "engine": "llamacpp"}],
        "scaling": {"min": 1},
    }
    settings.save(document={"models": [declared]}, base=0, actor="test")
    with pytest.raises(Conflict, match="declared in the settings, and is scaled there") as refused:
        life.scale(name="declared", actor="test", least=2)
    assert refused.value.reason.command == "llmgw config edit"
    with pytest.raises(Invalid, match=r"max \(1\) is below min \(3\)"):
        life.scale(name="tiny", actor="test", least=3, most=1)
    with pytest.raises(Invalid, match="--min, --max or both"):
        life.scale(name="tiny", actor="test")
    scaling(min=1, max=4, schedule=[{"days": ["mon"], "start": 480, "end": 600, "min": 3}])
    with pytest.raises(Conflict, match="from 08:00 to 10:00 wants 3 replicas, and max would be 2"):
        life.scale(name="tiny", actor="test", most=2)


def test_no_longer_on_demand_it_says_what_went(capsys: pytest.CaptureFixture[str]) -> None:
    rows.tiny()
    scaling(min=0, max=1, idle_timeout_s=60.0)
    call_command("scale", "tiny", "--min", "1")
    assert "idle_timeout went" in capsys.readouterr().out


def test_restarted_a_new_one_serves_before_the_old_one_goes(capsys: pytest.CaptureFixture[str]) -> None:
    rows.link_is_up()
    rows.joined()
    old = rows.serving()
    call_command("model", "restart", "tiny")
    assert "each new one ready before the old one stops" in capsys.readouterr().out
    passes.run()
    new = models.Replica.objects.exclude(pk=old.pk).get()
    assert states() == [(old.public_id, "ready"), (new.public_id, "starting")]
    ready()
    passes.run()
    assert states() == [(old.public_id, "draining"), (new.public_id, "ready")]
    old.refresh_from_db()
    assert (old.reason_code, old.reason, old.stale) == ("restart", "tiny is being restarted", False)


def test_a_restart_that_fits_nowhere_is_refused_and_nothing_moves() -> None:
    rows.link_is_up()
    rows.joined()
    rows.serving()
    models.Node.objects.update(cordoned=True)
    with pytest.raises(Conflict, match=r"is refused, and what runs goes on serving: .*cordoned"):
        rollout.restart(name="tiny", actor="test")
    assert catalog.entry("tiny").restarted_at is None
    models.Replica.objects.all().delete()
    with pytest.raises(Conflict, match="no replica of tiny runs"):
        rollout.restart(name="tiny", actor="test")
    catalog_actions.stop(name="tiny", actor="test")
    with pytest.raises(Conflict, match="stopped"):
        rollout.restart(name="tiny", actor="test")


def test_where_only_its_own_place_is_left_it_says_so() -> None:
    rows.link_is_up()
    small: NodeFacts = FACTS
    rows.joined(facts=small)
    rows.tiny(memory_bytes=(small.memory_bytes or 8 * GIB) * 6 // 10)
    passes.run()
    ready()
    begun = rollout.restart(name="tiny", actor="test")
    assert "replaced in place, since nothing fits beside" in begun.sentence
    passes.run()
    assert [s for _, s in states()] == ["draining", "pending"]


def test_removed_with_its_files_nodes_are_told_what_nobody_wants(capsys: pytest.CaptureFixture[str]) -> None:
    rows.link_is_up()
    shared, own = "hf:a/b/shared.gguf", "hf:a/b/own.gguf"
    rows.joined(facts=replace(FACTS, weights=(own, shared)))
    rows.tiny(source=own)
    definition = catalog.Model.objects.get(name="tiny").definition
    second = {**definition["profiles"][0], "source": shared}
    second["run"] = {**second["run"], "name": "other"}
    catalog.Model.objects.update(definition={**definition, "profiles": [*definition["profiles"], second]})
    rows.tiny(name="neighbour", source=shared)
    before = models.Node.objects.get().generation
    call_command("model", "remove", "tiny", "--purge", "--yes")
    said = capsys.readouterr().out
    assert "nodes delete what they fetched once its replicas have stopped (there on n1)" in said
    assert f"other models use {shared}" in said
    assert models.Node.objects.get().generation > before
    assert orders.desired_states(["n1"], store_id())["n1"].unwanted == (own,)
    assert AuditEntry.objects.get(action="model.remove").detail["purged"] == [own]
    added = {"name": "again", "source": own, "profiles": [{"name": "cpu", "engine": "llamacpp"}]}
    catalog_actions.add(definition=read(added), actor="test")
    assert orders.desired_states(["n1"], store_id())["n1"].unwanted == ()


def test_what_a_person_put_there_is_not_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    rows.tiny(source="path:/models/x.gguf")
    call_command("model", "remove", "tiny", "--purge", "--yes")
    assert "weights that lie where a person put them stay" in capsys.readouterr().out
    assert catalog.unwanted() == []


def test_a_list_is_watched_until_somebody_has_seen_enough(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows.tiny()
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("llmgw.cluster.commands.time.sleep", sleep)
    call_command("model", "list", "--watch")
    assert capsys.readouterr().out.count("MODEL") == 2
