"""`llmgw org|team|project|key|user`, as a person and as a program calls them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.management import call_command

from tenancy.models import Key, Person

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*args: str, code: int = 0) -> Any:
        try:
            call_command(*args, "--json")
            ended = 0
        except SystemExit as e:
            ended = e.code
        out = capsys.readouterr().out
        assert ended == code, out
        return json.loads(out)

    return run


def test_a_tree_a_person_and_a_key(run: Any) -> None:
    assert run("org", "create", "acme", "--allow", "tiny, small")["allow"] == ["tiny", "small"]
    run("team", "create", "acme/ml")
    assert run("project", "create", "acme/ml/train")["path"] == "acme/ml/train"
    person = run("user", "create", "Ada@Example.com", "--member", "acme/ml", "--role", "owner")
    assert person["memberships"] == [{"level": "acme/ml", "role": "owner"}]
    assert len(person["password"]) == 23
    key = run("key", "create", "laptop", "--person", "ada@example.com", "--days", "7")
    assert key["key"].startswith(key["prefix"])
    assert [k["name"] for k in run("key", "list", "--project", "acme/ml/train")] == ["laptop"]
    assert run("user", "list")[0]["keys"] == 1
    assert run("key", "revoke", key["prefix"])["state"] == "revoked"
    assert run("key", "list") == []
    assert [k["state"] for k in run("key", "list", "--all")] == ["revoked"]
    assert [o["teams"] for o in run("org", "list")] == [1]
    assert [t["path"] for t in run("team", "list")] == ["acme/ml"]
    assert [p["keys"] for p in run("project", "list")] == [0]


def test_an_account_s_life(run: Any) -> None:
    run("user", "create", "root@example.com", "--administrator")
    first = run("user", "create", "ada@example.com")
    assert run("user", "reset-password", "ADA@example.com")["password"] != first["password"]
    assert run("user", "role", "ada@example.com", "administrator")["administrator"] is True
    assert run("user", "role", "ada@example.com", "person")["administrator"] is False
    assert run("user", "deactivate", "ada@example.com")["active"] is False
    assert run("user", "activate", "ada@example.com")["active"] is True
    run("org", "create", "acme")
    assert run("user", "join", "ada@example.com", "acme")["memberships"]
    assert run("user", "leave", "ada@example.com", "acme")["memberships"] == []


@pytest.mark.parametrize(
    ("args", "code", "error"),
    [
        (("team", "create", "ml"), 2, "bad_path"),
        (("team", "create", "nobody/ml"), 1, "no_such_organisation"),
        (("project", "create", "nobody/ml/x"), 1, "no_such_team"),
        (("key", "create", "x"), 1, "no_such_project"),
        (("key", "create", "x", "--project", "a/b/c"), 1, "no_such_project"),
        (("key", "revoke", "llmgw_none00"), 1, "no_such_key"),
        (("user", "create", "nobody"), 2, "bad_email"),
        (("user", "deactivate", "nobody@example.com"), 1, "no_such_person"),
    ],
)
def test_refusals_have_a_code_and_an_exit_status(run: Any, args: tuple[str, ...], code: int, error: str) -> None:
    assert run(*args, code=code)["error"]["code"] == error
    assert not Person.objects.exists()


def test_a_whole_key_on_a_command_line_is_refused_and_not_repeated(run: Any) -> None:
    canary = "llmgw_CANARY" + "x" * 37
    said = run("key", "revoke", canary, code=2)
    assert said["error"]["code"] == "whole_key"
    assert "CANARY" not in str(said)


def test_a_bad_word_is_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        call_command("key", "create", "x", "--scope", "root")
    assert ended.value.code == 2
    assert not Key.objects.exists()


def test_for_people_the_key_stands_on_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    for args in (("org", "create", "a"), ("team", "create", "a/b"), ("project", "create", "a/b/c")):
        call_command(*args)
    capsys.readouterr()
    call_command("key", "create", "laptop")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("llmgw_")
    assert "not shown again" in lines[-1]


def test_limits_of_a_level_and_of_a_key(run: Any) -> None:
    for noun, path in (("org", "Acme"), ("team", "Acme/ml"), ("project", "Acme/ml/train")):
        run(noun, "create", path)
    run("limits", "set", "Acme", "--budget", "5000", "--in-cluster", "--allow", "tiny,small")
    run("limits", "set", "Acme/ml", "--rpm", "600", "--no-store", "--key-ttl-days", "30", "--tools", "jira.*")
    args = (
        "--budget",
        "250.5",
        "--period",
        "week",
        "--weight",
        "2",
        "--when-spent",
        "tiny",
        "--time-zone",
        "Asia/Tokyo",
    )
    found = run("limits", "set", "Acme/ml/train", *args)
    assert [level["level"] for level in found["levels"]] == ["Acme", "Acme/ml", "Acme/ml/train"]
    assert [level["limits"]["budget"] for level in found["levels"]] == ["5000.00", None, "250.50"]
    holds = found["in_force"]
    assert (holds["in_cluster"], holds["no_store"], holds["key_ttl_days"]) == (True, True, 30)
    assert (holds["time_zone"], holds["weight"], holds["when_spent"]) == ("Asia/Tokyo", 2.0, "tiny")
    assert (holds["allow"], holds["tools"]) == (["tiny", "small"], [["jira.*"]])
    key = run("key", "create", "k", "--concurrent", "3", "--band", "batch")
    assert (key["limits"]["concurrent"], key["band"]) == (3, "batch")
    found = run("limits", "set", f"key:{key['prefix']}", "--budget", "1", "--none", "concurrent")
    assert found["levels"][-1]["limits"] == {
        "rpm": None, "tpm": None, "concurrent": None, "budget": "1.00", "period": "month",
    }  # fmt: skip
    assert found["in_force"]["limits"]["tpm"] == 200_000, "nobody names tokens a minute: the cluster's default"
    assert found["in_force"]["limits"]["rpm"] is None, "the team names requests a minute"
    assert run("limits", "show", f"key:{key['id']}") == found
    run("limits", "set", "Acme", "--anywhere", "--none", "allow")
    assert run("limits", "show", "Acme")["in_force"]["allow"] is None


def test_what_limits_set_refuses(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run("org", "create", "Acme")
    assert "9007199.25" in run("limits", "set", "Acme", "--budget", "9999999", code=2)["error"]["message"]
    assert run("limits", "set", "Acme", "--budget", "-1", code=2)["error"]["code"] == "bad_amount"
    assert run("limits", "set", "Acme", "--weight", "2", code=2)["error"]["code"] == "bad_term"
    assert run("limits", "set", "Acme", "--rpm", "2", "--none", "rpm", code=2)["error"]["code"] == "bad_limit"
    assert run("limits", "set", "Acme", code=2)["error"]["code"] == "bad_limit"
    assert run("limits", "set", "Acme", "--period", "day", code=2)["error"]["code"] == "no_budget"
    assert run("limits", "show", "Acme/none", code=1)["error"]["code"] == "no_such_team"
    call_command("limits", "show", "Acme")
    assert capsys.readouterr().out.startswith("LEVEL  RPM")


def test_reusing_answers_and_keeping_requests(run: Any) -> None:
    for noun, path in (("org", "Acme"), ("team", "Acme/ml"), ("project", "Acme/ml/train")):
        run(noun, "create", path)
    (row,) = run("cache", "set", "Acme/ml/train", "--ttl", "1h", "--similar", "0.95")
    assert (row["on"], row["ttl_s"], row["any"], row["similar"], row["in_force"]) == (True, 3600.0, False, 0.95, True)
    (row,) = run("keep", "set", "Acme/ml/train", "--hours", "72", "--sample", "0.05")
    assert (row["hours"], row["sample"]) == (72.0, 0.05)
    run("limits", "set", "Acme", "--no-store")
    assert [(r["in_force"], r["kept_from_it_by"]) for r in run("keep", "show")] == [(False, "Acme")]
    assert (
        run("cache", "set", "Acme/ml/train", "--ttl", "1h", "--similar", "7", code=2)["error"]["code"] == "bad_similar"
    )
    assert run("cache", "set", "Acme/ml/train", "--off")[0]["on"] is False
    assert run("cache", "show") == []
    with pytest.raises(SystemExit, match="2"):
        call_command("cache", "set", "Acme/ml/train", "--ttl", "soon")
