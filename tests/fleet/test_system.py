"""The whole system stopped and started: by command, over rows, with its line in the audit."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.management import call_command

from agent.wire.shard import ShardState
from fleet import models, passes, selectors
from gateway.control import parts
from llmgw.cluster import selectors as cluster
from llmgw.cluster.actions import serving, settings
from tests.fleet import rows

pytestmark = pytest.mark.django_db


def test_stopped_it_holds_nothing_and_started_everything_is_back(capsys: pytest.CaptureFixture[str]) -> None:
    rows.link_is_up()
    rows.joined()
    rows.serving()
    settings.put(path="fleet.drain_s", value=0, actor="test")
    call_command("stop", note="new power supply", as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (told["stopped"], told["note"], told["waits_for"]) == (
        True,
        "new power supply",
        ["tiny: 1 replica still up"],
    )
    assert parts.policies().stopped
    passes.run()
    assert rows.told() == ()
    rows.beat()
    passes.run()
    assert not models.Replica.objects.exists()
    assert selectors.system()["waits_for"] == []
    assert parts.models().models["tiny"].state == "stopped"

    call_command("start", as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert not told["stopped"]
    assert told["waits_for"][0].startswith("tiny: 0 of 1 ready")
    passes.run()
    rows.beat(rows.seen(rows.told()[0], ShardState.READY))
    assert selectors.system()["waits_for"] == []
    done = [(e["action"], e["detail"]["note"]) for e in cluster.audit(action="system.")]
    assert done == [("system.start", ""), ("system.stop", "new power supply")]


def test_asked_twice_it_is_one_change_and_others_settings_stay() -> None:
    settings.put(path="gateway.retries", value=3, actor="test")
    assert serving.stop(actor="test")
    assert not serving.stop(actor="test")
    assert serving.start(actor="test")
    assert not serving.start(actor="test")
    assert settings.current()[1] == {"gateway": {"retries": 3}}


def test_waiting_ends_with_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    rows.link_is_up()
    rows.joined()
    rows.serving()
    with pytest.raises(SystemExit) as ended:
        call_command("stop", wait=True, timeout=0.1)
    assert ended.value.code == 1
    assert "tiny: 1 replica still up" in capsys.readouterr().err


def test_status_says_it(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr("llmgw.up.status._live", lambda: None)
    serving.stop(actor="somebody", note="moving")
    call_command("status")
    assert "system      stopped (moving) by somebody: llmgw start" in capsys.readouterr().out
