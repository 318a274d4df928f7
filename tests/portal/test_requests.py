"""The requests' pages: found by what the address says, what was said shown to whom it may be, two answers compared."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from gateway.core import kept
from gateway.models import KeptRequest, Usage
from llmgw.cluster.models import AuditEntry
from tenancy.models import Membership, Person
from tests.portal import seed

REQUEST = "req_" + "0" * 26
OTHER = "req_" + "0" * 25 + "1"


def keep(project: str, request_id: str, text: str, replay_of: str = "") -> None:
    asked = {"model": "tiny", "temperature": 0.5, "messages": [{"role": "user", "content": "<b>why</b>?"}]}
    answered = {"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}
    request, answer = (json.dumps(x).encode() for x in (asked, answered))
    KeptRequest.objects.create(
        request_id=request_id, at=timezone.now(), project=project, endpoint="chat", model="tiny", stream=False,
        request=kept.packed(request), answer=kept.packed(answer), request_bytes=len(request),
        answer_bytes=len(answer), replay_of=replay_of,
    )  # fmt: skip


@pytest.fixture
def both(seeded: seed.Seeded) -> seed.Seeded:
    keep(seeded.project.public_id, REQUEST, "the cat sat <i>here</i>")
    keep(seeded.project.public_id, OTHER, "the dog sat", REQUEST)
    return seeded


def signed_in(person: Person) -> Client:
    client = Client()
    client.force_login(person, backend="django.contrib.auth.backends.ModelBackend")
    return client


def test_a_request_is_told_and_drawn(admin: Client) -> None:
    Usage.objects.filter(request_id=REQUEST).update(
        queued_ms=120.0, dispatched_ms=300.0, ttft_ms=500.0, attempts=2,
        hops=["tiny@r-1: the engine cannot be reached"],
        cached_tokens=60, cost=2_100_000, tags={"feature": "search"}, session="s-1",
    )  # fmt: skip
    page = admin.get(f"/admin/requests/{REQUEST}").content.decode()
    assert re.search(f"{REQUEST} asked for tiny, was answered in .* s by r-0000000000 on node-1", page)
    for words in ("waited to be let in", "attempts that failed", "until the first token", "answering"):
        assert words in page
    for shown in ("tiny@r-1: the engine cannot be reached", "feature=search", "s-1", "0.0021", "(50"):
        assert shown in page
    assert 'role="img" aria-labelledby="life-words"' in page


@pytest.mark.usefixtures("both")
def test_what_was_said_is_shown_and_told(admin: Client) -> None:
    page = admin.get(f"/admin/requests/{REQUEST}/said").content.decode()
    assert "&lt;b&gt;why&lt;/b&gt;?" in page
    assert "the cat sat &lt;i&gt;here&lt;/i&gt;" in page
    assert "<i>here" not in page
    assert AuditEntry.objects.filter(action="request.read", subject=REQUEST, actor=seed.ADMIN).count() == 1
    assert f"/admin/requests/{REQUEST}/compare/{OTHER}" in admin.get(f"/admin/requests/{REQUEST}").content.decode()


@pytest.mark.usefixtures("both")
def test_two_answers_beside_each_other(admin: Client) -> None:
    page = admin.get(f"/admin/requests/{REQUEST}/compare/{OTHER}").content.decode()
    assert "<mark>cat</mark>" in page
    assert "<mark>dog</mark>" in page
    assert admin.get(f"/admin/requests/{REQUEST}/compare/req_none").status_code == 404


def test_owners_of_the_project_may_look_and_its_members_not(both: seed.Seeded) -> None:
    member, project = both.member, both.project
    addresses = [f"/admin/requests/{REQUEST}{more}" for more in ("", "/said", f"/compare/{OTHER}")]
    for address in addresses:
        assert signed_in(member).get(address).status_code == 403
    assert signed_in(member).post(f"/admin/requests/{REQUEST}/replay", {"model": "tiny"}).status_code == 403
    assert not AuditEntry.objects.filter(action__startswith="request.").exists()
    Membership.objects.filter(person=member).update(role=Membership.Role.OWNER)
    for address in addresses:
        answer = signed_in(member).get(address)
        assert answer.status_code == 200
        assert 'href="/admin/replicas' not in answer.content.decode()
    outsider = Person.objects.create_user("out@example.com", "x" * 12)
    assert signed_in(outsider).get(addresses[1]).status_code == 403
    assert project.public_id


@pytest.mark.usefixtures("both")
def test_a_replay_that_cannot_be_is_said_in_the_house(admin: Client, settings: Any) -> None:
    settings.MACHINE = replace(settings.MACHINE, port=1)
    answer = admin.post(f"/admin/requests/{REQUEST}/replay", {"model": "tiny"})
    assert answer.status_code == 409
    assert "did not answer" in answer.content.decode()
    assert admin.post(f"/admin/requests/{REQUEST}/replay", {}).status_code == 422
    assert admin.post("/admin/requests/req_none/replay", {"model": "tiny"}).status_code == 404


# -- the list


def found(client: Client, query: str) -> list[str]:
    answer = client.get(f"/admin/requests{query}")
    assert answer.status_code == 200
    return re.findall(r'<a href="/admin/requests/(req_\d+)"', answer.content.decode())


def test_requests_are_found_by_what_the_address_says(admin: Client, seeded: seed.Seeded) -> None:
    every = found(admin, "")
    assert len(every) == 60
    Usage.objects.filter(request_id=OTHER).update(
        session="s-1", tags={"feature": "search", "env": "prod"}, model="gone", replica="r-other"
    )
    for query in (
        "?session=s-1", "?tag=feature", "?tag=feature%3Dsearch", "?model=gone", "?replica=r-other", f"?q={OTHER}",
        f"?session=s-1&project={seeded.project.public_id}", f"?session=s-1&key={seeded.key.prefix}",
        f"?session=s-1&key={seeded.key.public_id}", "?session=s-1&sort=-duration",
    ):  # fmt: skip
        assert found(admin, query) == [OTHER], query
    for query in ("?tag=feature%3Dother", "?model=nobody", "?project=nobody", "?key=nobody", "?session=s", "?status=x"):
        assert found(admin, query) == [], query
    refused = found(admin, "?outcome=refused")
    assert refused
    assert refused == found(admin, "?status=429")
    day = timezone.localtime(Usage.objects.get(request_id=every[30]).at).date()
    assert every[30] in found(admin, f"?from={day}&to={day}")
    assert len(found(admin, f"?from={day}&to={day}")) <= 3
    assert set(found(admin, f"?to={day}")) | set(found(admin, f"?from={day}")) == set(every)
    assert "a moment is written like" in admin.get("/admin/requests?from=yesterday").content.decode()


def test_an_operator_asks_as_he_knows_it(admin: Client, seeded: seed.Seeded) -> None:
    odd = "req_01KBATRZ5W8T3V9QXHN2JM4P7C"
    last = Usage.objects.get(request_id=REQUEST)
    Usage.objects.create(
        request_id=odd, at=last.at, endpoint="chat", model="tiny", asked="tiny", outcome="timed_out", status=504,
        person=seeded.member.public_id,
    )  # fmt: skip
    for query in ("?q=2jm4p7c", "?q=…N2JM4P7C", "?q=req_01KB", "?status=5xx", "?status=504", f"?person={seed.MEMBER}"):
        assert re.findall('title="(req_01K[A-Z0-9]*)"', admin.get(f"/admin/requests{query}").content.decode()) == [
            odd
        ], query
        assert found(admin, query) == [], "and nothing else"
    page = admin.get("/admin/requests?outcome=failed").content.decode()
    assert odd in page
    assert "the engine failed" in page
    assert len(re.findall('<th scope="row"', page)) == 1 + Usage.objects.filter(outcome="engine_failed").count()
    assert "among the newest 100,000" in admin.get("/admin/requests?q=ZZZZ").content.decode()
    minute = timezone.localtime(last.at)
    narrow = f"?from={minute - timedelta(minutes=2):%Y-%m-%dT%H:%M}&to={minute + timedelta(minutes=2):%Y-%m-%dT%H:%M}"
    assert found(admin, narrow) == [REQUEST]
    page = admin.get(f"/admin/requests{narrow}&key={seeded.key.prefix}").content.decode()
    assert f'name="from" type="datetime-local" value="{minute - timedelta(minutes=2):%Y-%m-%dT%H:%M}"' in page
    assert f"/api/v1/requests?key={seeded.key.public_id}" in page, "the API is asked in its own words"


def test_an_id_shows_where_it_differs(admin: Client) -> None:
    page = admin.get("/admin/requests").content.decode()
    assert f'title="{OTHER}" translate="no"><code>…00000001</code>' in page


def test_pages_go_on_where_the_last_one_ended(admin: Client) -> None:
    template = Usage.objects.get(request_id=REQUEST)
    at = template.at - timedelta(days=60)
    more = [f"req_1{n:025d}" for n in range(150)]
    Usage.objects.bulk_create(
        Usage(request_id=name, at=at, endpoint="chat", model="tiny", asked="tiny", outcome="ok") for name in more
    )
    seen, query = [], ""
    for _ in range(3):
        seen += found(admin, query)
        page = admin.get(f"/admin/requests{query}").content.decode()
        link = re.search(r'href="\?before=(req_\d+)"', page)
        if link is None:
            break
        query = f"?before={link[1]}"
    assert len(seen) == len(set(seen)) == 210
    assert seen[60:] == more[::-1]
    assert "there is no request" in admin.get("/admin/requests?before=req_none").content.decode()


def test_as_a_file(admin: Client) -> None:
    answer = admin.get("/admin/requests.csv?outcome=refused")
    lines = list(csv.reader(b"".join(answer.streaming_content).decode("utf-8-sig").splitlines()))
    head, rows = lines[0], lines[1:]
    assert [row[head.index("request_id")] for row in rows] == found(admin, "?outcome=refused")
    assert {row[head.index("status")] for row in rows} == {"429"}
    assert "/api/v1/requests?outcome=refused" in admin.get("/admin/requests?outcome=refused").content.decode()
    assert admin.get("/api/v1/requests?outcome=refused").status_code == 200


def test_live_is_in_the_address(admin: Client) -> None:
    assert "data-every" not in admin.get("/admin/requests").content.decode()
    page = admin.get("/admin/requests?model=tiny&live=1").content.decode()
    assert 'data-fresh data-every="2"' in page
    assert 'href="?model=tiny"' in page
