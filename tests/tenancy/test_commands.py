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
