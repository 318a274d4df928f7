"""`llmgw config` and `llmgw audit`, as people type them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.management import call_command

from llmgw.cluster.actions import settings
from llmgw.cluster.errors import Conflict

pytestmark = pytest.mark.django_db(transaction=True)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    call_command(*words, "--json")
    return json.loads(capsys.readouterr().out)


def test_a_value_is_set_read_and_rolled_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "config", "get", "gateway.retries")["value"] == 2
    assert run(capsys, "config", "set", "gateway.retries", "3", "--note", "flaky")["version"] == 1
    assert run(capsys, "config", "set", "keys.max_ttl_days", "null")["version"] == 2
    assert run(capsys, "config", "get", "gateway.retries") == {"version": 2, "path": "gateway.retries", "value": 3}
    assert settings.in_force().keys.max_ttl_days is None
    assert run(capsys, "config", "set", "gateway.retries", "default")["value"] == 2
    assert run(capsys, "config", "rollback", "1")["version"] == 4
    assert settings.in_force().gateway.retries == 3
    notes = [r["note"] for r in run(capsys, "config", "history")]
    assert notes == ["back to version 1", "set gateway.retries", "set keys.max_ttl_days", "flaky"]
    actions = {e["action"] for e in run(capsys, "audit", "list", "--action", "settings.")}
    assert actions == {"settings.save"}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("set", "gateway.nonsense", "3"), 2, "there is no setting gateway.nonsense"),
        (("set", "gateway.retries", "many"), 2, "gateway.retries"),
        (("set", "gateway.retries", "null"), 2, "gateway.retries"),
        (("set", "gateway.retries", "-1"), 2, "gateway.retries"),
        (("set", "fleet.first_port", "70000"), 2, "fleet.first_port"),
        (("set", "gateway.retries", "{"), 2, "not YAML"),
        (("set", "agents.default.heartbeat_s", "0"), 2, "agents.default.heartbeat_s"),
        (("set", "agents.default.nonsense", "1"), 2, "there is no setting agents.default.nonsense"),
        (("set", "agents.nodes.n1", "{nonsense: 1}"), 2, "there is no setting agents.nodes.n1.nonsense"),
        (("set", "agents.nodes.n1.labels", "{rack: 1}"), 2, "labels"),
        (("set", "agents.nodes.n1.heartbeat_s", "30"), 2, "fleet.node_lost_s is 20, and must be at least 65"),
        (("set", "fleet.node_lost_s", "8"), 2, "must be at least 9"),
        (("get", "nothing"), 1, "there is no setting nothing"),
        (("rollback", "7"), 1, "there is no version 7"),
    ],
)
def test_what_is_wrong_is_said(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int, said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        call_command("config", *words)
    assert ended.value.code == code
    assert said in capsys.readouterr().err


def test_a_stale_save_is_refused() -> None:
    settings.put(path="gateway.retries", value=3, actor="a")
    with pytest.raises(Conflict, match="version 1 is in force"):
        settings.save(document={}, base=0, actor="b")


def test_an_editor_changes_the_document(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR", 'sh -c \'echo "gateway: {retries: 5}" > "$0"\'')
    assert run(capsys, "config", "edit")["version"] == 1
    assert settings.in_force().gateway.retries == 5
    assert run(capsys, "config", "edit")["note"] == "nothing was changed"
