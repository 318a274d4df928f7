"""Notices on rows, and webhooks over real sockets: who is told what, how often, signed with what."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC
from django.core.management import call_command
from django.utils import timezone

from llmgw.cluster import notifying, selectors, webhooks
from llmgw.cluster.actions import notices
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.core import notices as core
from llmgw.cluster.core.notices import Said, Standing
from llmgw.cluster.errors import Invalid
from llmgw.cluster.models import Delivery, Notice
from tests.cluster.receiver import Receiver

pytestmark = pytest.mark.django_db(transaction=True)

LOST = Said("the node n1 has not been heard for 20 s", "llmgw node show n1", {"replicas": 2})
BACK = Said("the node n1 is heard again")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as found:
        yield found


def hooks(*found: dict[str, Any]) -> None:
    cluster_settings.put(path="notify.webhooks", value=list(found), actor="test")


def lost(*nodes: str) -> None:
    """How things stand: these are lost, and n1 to n9 but for them are well."""
    so = {node: Said(LOST.sentence.replace("n1", node), LOST.command) for node in nodes}
    well = {f"n{i}": BACK for i in range(1, 10) if f"n{i}" not in nodes}
    notices.stand({core.NODE_LOST: Standing(so, well)})


def earlier(hours: float) -> None:
    """As if everything so far had been that long ago."""
    for row in Notice.objects.all():
        for name in ("at", "due_at", "told_at", "over_at"):
            at: datetime | None = getattr(row, name)
            setattr(row, name, at and at - timedelta(hours=hours))
        row.save()


def test_what_is_lost_is_told_once_and_its_end_too(receiver: Receiver) -> None:
    hooks({"url": receiver.url()})
    for _ in range(3):
        lost("n1")
        notifying.run()
    (got,) = receiver.got
    assert got.headers["x-llmgw-event"] == "node_lost"
    assert got.headers["x-llmgw-delivery"] == got.event["id"]
    assert {k: got.event[k] for k in ("kind", "subject", "message", "command")} == {
        "kind": "node_lost",
        "subject": "n1",
        "message": LOST.sentence,
        "command": LOST.command,
    }
    assert datetime.fromisoformat(got.event["at"]).tzinfo is not None
    lost()
    notifying.run()
    assert [r.event["kind"] for r in receiver.got] == ["node_lost", "node_back"]
    assert receiver.got[1].event["detail"]["since"] == got.event["at"]
    assert not Notice.objects.filter(over_at=None).exists()


def test_one_that_comes_and_goes_is_told_once_an_hour_and_the_last_word_is_true(receiver: Receiver) -> None:
    hooks({"url": receiver.url()})
    lost("n1")
    notifying.run()
    for nodes in ((), ("n1",), (), ("n1",)):
        lost(*nodes)
        notifying.run()
    assert [r.event["kind"] for r in receiver.got] == ["node_lost", "node_back"]
    assert selectors.notices(standing=True)[0]["told_at"] is None
    earlier(1.0)
    lost("n1")
    notifying.run()
    assert [r.event["kind"] for r in receiver.got] == ["node_lost", "node_back", "node_lost"]


def test_what_was_over_before_its_time_is_not_told_at_all(receiver: Receiver) -> None:
    hooks({"url": receiver.url()})
    lost("n1")
    notifying.run()
    for nodes in ((), ("n1",), ()):
        lost(*nodes)
    notifying.run()
    earlier(2.0)
    notifying.run()
    assert [r.event["kind"] for r in receiver.got] == ["node_lost", "node_back"]


def test_other_subjects_do_not_wait_for_one_another(receiver: Receiver) -> None:
    hooks({"url": receiver.url()})
    lost("n1")
    notifying.run()
    lost("n1", "n2")
    notifying.run()
    assert [r.event["subject"] for r in receiver.got] == ["n1", "n2"]


def test_what_is_no_more_ends_in_silence(receiver: Receiver) -> None:
    hooks({"url": receiver.url()})
    lost("n1")
    notifying.run()
    notices.stand({core.NODE_LOST: Standing()})
    notifying.run()
    assert len(receiver.got) == 1
    assert Notice.objects.get().over_at is not None


def test_what_is_undecided_goes_on(receiver: Receiver) -> None:
    lost("n1")
    notices.stand({core.NODE_LOST: Standing(undecided=["n1"])})
    assert Notice.objects.get().over_at is None


def test_the_body_is_signed_with_what_the_file_holds(receiver: Receiver, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    hooks({"url": receiver.url(), "secret_file": str(tmp_path / "secret")})
    lost("n1")
    notifying.run()
    (got,) = receiver.got
    check = HMAC(b"s3cret", SHA256())
    check.update(got.body)
    check.verify(bytes.fromhex(got.headers["x-llmgw-signature"].removeprefix("sha256=")))


def test_a_secret_that_cannot_be_read_sends_nothing_unsigned(receiver: Receiver, tmp_path: Path) -> None:
    hooks({"url": receiver.url(), "secret_file": str(tmp_path / "none")})
    lost("n1")
    notifying.run()
    assert receiver.got == []
    assert "it cannot be read" in Delivery.objects.get().answer


def test_people_get_one_message_a_line_each_and_nobody_is_called(receiver: Receiver) -> None:
    hooks({"url": receiver.url("/hooks/abc")})
    said = Said("the model m is parked: <!channel> died & \nburned", "llmgw replica retry r-1")
    notices.stand({core.MODEL_PARKED: Standing({"m": said})})
    lost("n1", "n2")
    notifying.run()
    (got,) = receiver.got
    lines = got.event["text"].splitlines()
    assert set(got.event) == {"text"}
    assert lines[0] == (
        "model_parked: the model m is parked: &lt;!channel&gt; died &amp; burned (`llmgw replica retry r-1`)"
    )
    assert len(lines) == 3
    assert got.headers["x-llmgw-event"] == "several"
    assert Delivery.objects.filter(state=Delivery.State.SENT).count() == 3


def test_a_hundred_lost_nodes_are_one_message_of_twenty_lines(receiver: Receiver) -> None:
    hooks({"url": receiver.url(), "format": "slack"})
    notices.begin(core.NODE_LOST, {f"n{i}": LOST for i in range(100)})
    notifying.run()
    (got,) = receiver.got
    lines = got.event["text"].splitlines()
    assert len(lines) == 21
    assert lines[-1] == "… and 80 more: llmgw notify list"


def test_a_webhook_chooses_its_events(receiver: Receiver) -> None:
    hooks(
        {"url": receiver.url("/all")},
        {"url": receiver.url("/lost"), "events": ["node_lost"]},
        {"url": receiver.url("/money"), "events": ["budget_spent"]},
    )
    lost("n1")
    notifying.run()
    assert sorted(r.path for r in receiver.got) == ["/all", "/lost"]


def test_three_tries_and_then_it_is_given_up(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    hooks({"url": receiver.url("/services/T0/SECRET")})
    receiver.answers = [(500, {}, b"broken"), (503, {"retry-after": "90"}, b""), (404, {}, b"no_service")]
    lost("n1")
    waits = []
    for _ in range(3):
        began = timezone.now()
        notifying.run()
        notifying.run()
        row = Delivery.objects.get()
        waits.append(round((row.due_at - began).total_seconds()))
        Delivery.objects.update(due_at=timezone.now() - timedelta(seconds=1))
    assert len(receiver.got) == 3
    assert waits[0] == 10
    assert waits[1] == 90
    row = Delivery.objects.get()
    assert (row.state, row.tries, row.answer) == ("failed", 3, "404 Not Found: no_service")
    notifying.run()
    assert len(receiver.got) == 3
    assert "was not told of node_lost n1: 404 Not Found" in caplog.text
    assert "SECRET" not in caplog.text + json.dumps(selectors.notices(), default=str)


def test_one_that_is_away_does_not_hold_up_the_others(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(webhooks, "SILENT_S", 0.3)
    caplog.set_level(logging.INFO)
    with Receiver() as slow:
        slow.silent_s = 1.0
        hooks({"url": "http://127.0.0.1:9/SECRET"}, {"url": slow.url()}, {"url": receiver.url()})
        lost("n1", "n2")
        notifying.run()
    assert [r.event["subject"] for r in receiver.got] == ["n1", "n2"]
    assert len(slow.got) == 1  # the second is not tried behind a first that failed
    states = {(d.to, d.notice.subject): (d.state, d.answer) for d in Delivery.objects.select_related("notice")}
    assert states["127.0.0.1:9", "n1"][0] == "waiting"
    assert "it cannot be reached" in states["127.0.0.1:9", "n1"][1]
    assert any("did not answer within" in answer for _, answer in states.values())
    assert "SECRET" not in caplog.text + str(states)


def test_one_that_is_slow_but_answers_does_not_outlast_the_claim(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest waits for the next time, without a try being counted, so no other worker sends the same meanwhile."""
    monkeypatch.setattr(webhooks, "ALL_S", 0.0)
    hooks({"url": receiver.url()})
    lost("n1", "n2")
    notifying.run()
    assert [r.event["subject"] for r in receiver.got] == ["n1"]
    row = Delivery.objects.get(notice__subject="n2")
    assert (row.state, row.tries) == ("waiting", 0)
    Delivery.objects.update(due_at=timezone.now() - timedelta(seconds=1))
    notifying.run()
    assert [r.event["subject"] for r in receiver.got] == ["n1", "n2"]


def test_nothing_follows_where_an_answer_points(receiver: Receiver) -> None:
    with Receiver() as elsewhere:
        receiver.answers = [(307, {"location": elsewhere.url()}, b"")]
        hooks({"url": receiver.url()})
        lost("n1")
        notifying.run()
        assert elsewhere.got == []
    assert "it is elsewhere" in Delivery.objects.get().answer


def test_a_webhook_that_was_taken_away_is_not_told(receiver: Receiver) -> None:
    hooks({"url": "http://127.0.0.1:9/"})
    lost("n1")
    notifying.run()
    hooks()
    Delivery.objects.update(due_at=timezone.now() - timedelta(seconds=1))
    notifying.run()
    row = Delivery.objects.get()
    assert (row.state, row.answer) == ("failed", "the webhook is no longer in the settings")


def test_a_worker_that_died_in_the_midst_is_made_up_for(receiver: Receiver) -> None:
    hooks({"url": receiver.url()})
    lost("n1")
    notifying._give(timezone.now())
    row = Delivery.objects.get()
    assert notifying._claim(row, timezone.now())
    assert not notifying._claim(row, timezone.now())  # another worker has it
    notifying.run()
    assert receiver.got == []
    Delivery.objects.update(due_at=timezone.now() - timedelta(seconds=1))
    notifying.run()
    assert len(receiver.got) == 1


def test_without_a_webhook_it_is_kept_all_the_same() -> None:
    lost("n1")
    notifying.run()
    (row,) = selectors.notices()
    assert row["told_at"] is not None
    assert row["deliveries"] == []


def test_an_address_from_a_file_is_not_shown(receiver: Receiver, tmp_path: Path) -> None:
    (tmp_path / "slack").write_text(receiver.url("/hooks/SECRET") + "\n")
    hooks({"url_file": str(tmp_path / "slack"), "name": "night"})
    lost("n1")
    notifying.run()
    assert receiver.got[0].path == "/hooks/SECRET"
    assert "text" in receiver.got[0].event
    assert Delivery.objects.get().to == "night"
    assert "SECRET" not in repr(webhooks.targets(cluster_settings.in_force().notify.webhooks))


@pytest.mark.parametrize(
    ("webhook", "said"),
    [
        ({}, "needs either url or url_file"),
        ({"url": "ops.example.com/x"}, "begins with https:// or http:// and names a host"),
        ({"url": "https://"}, "names a host"),
        ({"url": "https://a b"}, "names a host"),
        ({"url": "https://h:99999/"}, "names a host"),
        ({"url": "https://h/", "secret_file": "secret"}, "notify.webhooks[0].secret_file is the whole path"),
        ({"url": "https://h/", "events": ["node_gone"]}, "there is no node_gone, only model_parked"),
        ({"url": "https://h/", "even": []}, "there is no setting notify.webhooks[0].even"),
        ({"url": "https://h/", "format": "teams"}, "notify.webhooks[0].format"),
    ],
)
def test_a_bad_webhook_is_refused(webhook: dict[str, Any], said: str) -> None:
    with pytest.raises(Invalid) as refused:
        hooks(webhook)
    assert said in str(refused.value)


def test_the_same_twice_is_refused() -> None:
    with pytest.raises(Invalid, match="is there twice"):
        hooks({"url": "https://h/"}, {"url": "https://h/", "events": ["node_lost"]})


@pytest.mark.parametrize(
    ("typed", "form", "url"),
    [
        ("https://hooks.slack.com/services/T/B/x", "slack", None),
        ("https://chat.example.com/hooks/abc", "slack", None),
        ("https://ops.example.com/in/slack", "slack", None),
        ("https://ops.example.com/llmgw", "json", None),
        ("slack:https://ops.example.com/llmgw", "slack", "https://ops.example.com/llmgw"),
        ("json:https://chat.example.com/hooks/abc", "json", "https://chat.example.com/hooks/abc"),
    ],
)
def test_which_form_an_address_gets(typed: str, form: str, url: str | None) -> None:
    assert core.typed(typed) == (form, url or typed)


def test_the_command_adds_tests_and_lists(receiver: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("notify", "add", receiver.url("/hooks/abc"))
    assert "(slack) was added\na test event was answered: 200" in capsys.readouterr().out
    call_command("notify", "add", receiver.url("/hooks/abc"))
    assert "was there already" in capsys.readouterr().out
    call_command("notify", "add", f"json:{receiver.url('/slack')}")
    assert receiver.got[-1].event["kind"] == "test"
    assert len(cluster_settings.in_force().notify.webhooks) == 2
    receiver.answers = [(403, {}, b"invalid_token")]
    capsys.readouterr()
    with pytest.raises(SystemExit) as failed:
        call_command("notify", "test")
    assert failed.value.code == 1
    assert "403 Forbidden: invalid_token" in capsys.readouterr().out
    lost("n1")
    notifying.run()
    call_command("notify", "list", "--json")
    assert json.loads(capsys.readouterr().out)[0]["subject"] == "n1"
    call_command("notify", "list", "--standing", "--kind", "node_lost")
    assert "node_lost" in capsys.readouterr().out


def test_nothing_to_test_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        call_command("notify", "test")
    assert "there is no webhook to test" in capsys.readouterr().err
