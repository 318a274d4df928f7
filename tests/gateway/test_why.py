"""`why` through its doors: the command, the API, the pages."""

from __future__ import annotations

import json
import re

import pytest
from django.core.management import call_command
from django.test import Client

from gateway.control import ledger, parts
from gateway.control.redis import client
from gateway.models import Usage
from llmgw.cluster import why
from llmgw.cluster.errors import Invalid, NotFound
from tenancy.actions import keys, limits, tree
from tenancy.models import Key
from tests.portal import seed

pytestmark = pytest.mark.django_db
REQUEST = "req_" + "0" * 26


@pytest.fixture
def seeded() -> seed.Seeded:
    return seed.fill()


@pytest.fixture
def browser() -> Client:
    return Client()


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    capsys.readouterr()
    call_command("why", *words, "--json")
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.usefixtures("seeded")
def test_every_noun_is_told_by_its_app(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(capsys, REQUEST)["noun"] == "request"
    assert ask(capsys, "TINY")["sentence"] == "tiny serves: 2 of the 2 replicas that are wanted can be asked"
    assert ask(capsys, "idle-model")["command"] == "llmgw model start idle-model"
    stuck = ask(capsys, "r-0000000005")
    assert stuck["command"] == "llmgw replica retry r-0000000005"
    assert "out of memory" in str(stuck["sentence"])
    assert ask(capsys, "node-2", "--noun", "node")["noun"] == "node"
    call_command("why", "qwen2.5-72b")
    shown = capsys.readouterr().out
    assert shown.startswith("qwen2.5-72b does not serve")
    assert "llmgw explain-placement qwen2.5-72b" in shown
    with pytest.raises(SystemExit):
        call_command("why", "nothing-of-that-name")
    assert "no request, key, model, replica or node" in capsys.readouterr().err
    with pytest.raises(NotFound, match="there is no request req_9"):
        why.why("req_9")
    with pytest.raises(Invalid):
        why.why("tiny", "planet")


def test_a_key_is_judged_as_an_edge_would(seeded: seed.Seeded) -> None:
    key: Key = seeded.key
    assert why.why(key.public_id)["code"] == "works"
    assert why.why(key.prefix, model="tiny")["code"] == "works"
    assert why.why(key.public_id, model="nobody")["code"] == "model_not_found"
    assert why.why(key.public_id, model="idle-model")["code"] == "model_stopped"
    team = seeded.project.team
    team.allow = ["qwen2.5-72b"]
    team.save()
    found = why.why(key.public_id, model="tiny")
    assert found["code"] == "model_forbidden"
    assert "the team İstanbul Lab/research does not allow tiny" in found["sentence"]
    assert "the team İstanbul Lab/research allows qwen2.5-72b" in [r["sentence"] for r in found["reasons"]]
    assert found["command"] == "llmgw limits set 'İstanbul Lab/research' --allow qwen2.5-72b,tiny"
    limits.change(level=seeded.project, limits={"rpm": 60, "budget": "250"}, terms={}, actor="test")
    client().delete(*(ledger._purse(level) for level in ledger.budgets(parts.tenancy())))
    ledger.seed(ledger.budgets(parts.tenancy()))
    told = [r for r in why.why(key.public_id)["reasons"] if "the project allows" in r["sentence"]]
    assert re.search(
        r"60 requests a minute; .*250\.00 a month; [\d.]+ of it is spent; 249\.\d+ of it is left until",
        told[0]["sentence"],
    )
    assert told[0]["command"] == "llmgw limits show 'İstanbul Lab/research/assistants'"
    team.allow = None
    team.save()
    (budget,) = (level for level in ledger.budgets(parts.tenancy()) if level.id == seeded.project.public_id)
    client().hset(ledger._purse(budget), "s", 250_000_000_000)
    assert why.why(key.public_id, model="tiny")["code"] == "insufficient_quota"
    client().delete(ledger._purse(budget))  # Redis outlives the test, and the next one's project has the same id
    keys.revoke(key=key, actor="test")
    assert why.why(key.public_id)["code"] == "revoked"
    with pytest.raises(Invalid):
        why.why("llmgw_" + "x" * 43)


@pytest.mark.usefixtures("seeded")
def test_a_request_is_shown_with_a_sentence_first(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("request", "show", REQUEST)
    assert capsys.readouterr().out.startswith(
        f"{REQUEST} asked for tiny, was answered in 1.9 s by r-0000000000 on node-1"
    )
    call_command("request", "show", REQUEST, "--json")
    assert json.loads(capsys.readouterr().out)["why"]["code"] == "answered"


def test_the_api(browser: Client, seeded: seed.Seeded) -> None:
    assert browser.get("/api/v1/why?of=tiny").status_code in (401, 403)
    browser.force_login(seeded.admin)
    assert browser.get("/api/v1/why?of=tiny").json()["noun"] == "model"
    assert browser.get("/api/v1/why?of=nobody").status_code == 404
    assert browser.get("/api/v1/why").status_code == 422
    assert browser.get(f"/api/v1/why?of={seeded.key.public_id}&model=tiny").json()["code"] == "works"
    assert browser.get(f"/api/v1/requests/{REQUEST}").json()["why"]["noun"] == "request"


def test_a_member_asks_of_own_keys_alone(browser: Client, seeded: seed.Seeded) -> None:
    own = Key.objects.get(person=seeded.member)
    browser.force_login(seeded.member, backend="django.contrib.auth.backends.ModelBackend")
    assert browser.get(f"/why?noun=key&of={own.public_id}&model=tiny").status_code == 200
    assert browser.get(f"/why?noun=key&of={seeded.key.public_id}").status_code == 404
    assert browser.get("/why?of=tiny").status_code == 403
    assert browser.get(f"/why?of={own.public_id}").status_code == 403
    other = tree.create_project(team=seeded.project.team, name="other", actor="test")
    Usage.objects.filter(request_id=REQUEST).update(project=other.public_id)
    assert browser.get(f"/why?noun=request&of={REQUEST}").status_code == 403
