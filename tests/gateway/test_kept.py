"""Kept requests: what an edge keeps and what not, how it reaches the store and leaves it, and sending it once more."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.core.management import call_command
from django.utils import timezone

from gateway.actions import kept as actions
from gateway.control import kept
from gateway.control.ingesting import ingest
from gateway.core import answers, compare
from gateway.core import kept as core
from gateway.core.snapshot import Endpoints, Keep, Policies, Scope, Tenancy
from gateway.models import KeptRequest, Usage
from llmgw import keys
from llmgw.cluster.errors import Forbidden, NotFound
from llmgw.cluster.models import AuditEntry
from tenancy.actions import tree
from tenancy.models import Membership, Person, Project
from tests.gateway.edges import AUTH, KEY, MODEL, EdgeProcess, catalog, chat, endpoint, scope
from tests.gateway.edges import tenancy as usual
from tests.gateway.upstreams import Call, engine
from tests.portal import house

CHAT = "/v1/chat/completions"


@pytest.fixture
def counting() -> Iterator[house.Engine]:
    """Streams `ANSWERS`, in a thread of its own."""
    made = house.Engine()
    made.start()
    yield made
    made.stop()


def serve(edge: EdgeProcess, port: int, keep: Keep | None = None, project: str = "p1", **fields: Any) -> None:
    kept_scope = replace(scope(project), keep=keep, **fields)
    entry = {keys.key_hash(KEY): replace(usual().keys[keys.key_hash(KEY)], project=project)}
    edge.publish(
        tenancy=Tenancy(keys=entry, projects={project: kept_scope}, people=frozenset({"a1"})),
        catalog=catalog(),
        endpoints=Endpoints(endpoints=(endpoint(port),)),
        policies=Policies(),
    )


def shipped(edge: EdgeProcess, request_id: str) -> KeptRequest:
    """As soon as it has come."""
    deadline = time.monotonic() + 5
    while not KeptRequest.objects.filter(pk=request_id).exists():
        kept.ship(edge.home / "spool")
        assert time.monotonic() < deadline, "it was not kept"
        time.sleep(0.05)
    return KeptRequest.objects.get(pk=request_id)


def ask(edge: EdgeProcess, **fields: Any) -> httpx.Response:
    return httpx.post(edge.url + CHAT, json=chat(**fields), headers=AUTH, timeout=15)


# -- which ones


def test_a_share_is_the_same_ids_every_time() -> None:
    ids = [f"req_{n:026d}" for n in range(4000)]

    def those(share: float) -> set[str]:
        keeping = Scope("o", "t", "p", keep=Keep(1, share))
        return {i for i in ids if core.wanted(keeping, i)}

    tenth, half = those(0.1), those(0.5)
    assert 300 < len(tenth) < 500
    assert tenth < half
    assert those(0.1) == tenth
    assert those(1.0) == set(ids)
    assert not core.wanted(Scope("o", "t", "p", keep=Keep(1), no_store=True), ids[0])
    assert not core.wanted(Scope("o", "t", "p"), ids[0])


# -- on the edge


@pytest.mark.django_db
def test_what_was_sent_and_answered_is_kept(edge: EdgeProcess) -> None:
    async def script(call: Call) -> None:
        await call.whole({"choices": [{"message": {"content": "four"}, "finish_reason": "stop"}], "usage": {}})

    async def run() -> httpx.Response:
        async with engine(script) as upstream:
            serve(edge, upstream.port, Keep(1))
            async with httpx.AsyncClient(timeout=15) as client:
                return await client.post(edge.url + CHAT, json=chat(model="helper", temperature=0), headers=AUTH)

    answered = asyncio.run(run())
    row = shipped(edge, answered.headers["x-request-id"])
    found = kept.bodies(row.request_id)
    assert (found.project, found.endpoint, found.model, found.stream) == ("p1", "chat", MODEL, False)
    sent = json.loads(found.request)
    assert (sent["model"], sent["temperature"]) == (MODEL, 0)  # as the model was sent it: its own name, not the alias
    assert found.answer == answered.content
    assert found.whole


@pytest.mark.django_db
def test_a_stream_is_kept_as_the_client_got_it(edge: EdgeProcess, counting: house.Engine) -> None:
    house.ANSWERS["keep me"] = "one two three four"
    serve(edge, counting.port, Keep(1))
    answered = ask(edge, stream=True, messages=[{"role": "user", "content": "keep me"}])
    found = kept.bodies(shipped(edge, answered.headers["x-request-id"]).request_id)
    assert found.stream
    assert found.answer == answered.content
    assert answers.read(found.answer).text == "one two three four"


@pytest.mark.django_db
def test_of_a_long_answer_its_beginning_is_kept(edge: EdgeProcess) -> None:
    async def script(call: Call) -> None:
        await call.whole({"choices": [{"message": {"content": "x" * 400_000}, "finish_reason": "stop"}]})

    async def run() -> httpx.Response:
        async with engine(script) as upstream:
            serve(edge, upstream.port, Keep(1))
            async with httpx.AsyncClient(timeout=15) as client:
                return await client.post(edge.url + CHAT, json=chat(), headers=AUTH)

    answered = asyncio.run(run())
    row = shipped(edge, answered.headers["x-request-id"])
    found = kept.bodies(row.request_id)
    assert len(found.answer) == core.MOST_ANSWER_BYTES
    assert row.answer_bytes == len(answered.content)
    assert not found.whole


@pytest.mark.django_db
def test_nothing_is_kept_where_nothing_may_be(edge: EdgeProcess, counting: house.Engine) -> None:
    house.ANSWERS["hi"] = "a b"
    asked = []
    for keep, more in ((None, {}), (Keep(1), {"no_store": True})):
        serve(edge, counting.port, keep, **more)
        asked.append(ask(edge, stream=True))
    serve(edge, counting.port, Keep(1))
    asked.append(ask(edge, model="nobody"))  # never sent to a model
    assert [a.status_code for a in asked] == [200, 200, 404]
    shipped(edge, ask(edge, stream=True).headers["x-request-id"])
    assert not KeptRequest.objects.filter(pk__in=[a.headers["x-request-id"] for a in asked]).exists()


@pytest.mark.django_db
def test_what_a_crash_left_is_read_once_or_thrown_away(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    one = core.Kept("req_1", 1.7e9, "p", "chat", "m", False, core.packed(b"{}"), core.packed(b""), 2, 0)
    (folder / "edge-1-00000001.kept").write_bytes(core.encode([one]))
    (folder / "edge-1-00000002.kept").write_bytes(core.encode([one, replace_id(one, "req_2")]))
    (folder / "edge-1-00000003.kept").write_bytes(b"\x93cut")
    (folder / "edge-1-00000004.new").write_bytes(b"half")
    assert kept.ship(tmp_path) == 3
    assert set(KeptRequest.objects.values_list("request_id", flat=True)) == {"req_1", "req_2"}
    assert [p.name for p in folder.iterdir()] == ["edge-1-00000004.new"]
    kept.forget(tmp_path, timezone.now() + timedelta(hours=2))
    assert not list(folder.iterdir())


def replace_id(one: core.Kept, name: str) -> core.Kept:
    return core.Kept(**{**{f: getattr(one, f) for f in one.__struct_fields__}, "id": name})


# -- in the store


def _project(name: str, **fields: Any) -> Project:
    organisation = tree.create_organisation(name=f"o-{name}", actor="test")
    project = tree.create_project(
        team=tree.create_team(organisation=organisation, name="t", actor="test"), name=name, actor="test"
    )
    Project.objects.filter(pk=project.pk).update(**fields)
    return project


def _row(project: str, name: str, hours_ago: float) -> None:
    KeptRequest.objects.create(
        request_id=name, at=timezone.now() - timedelta(hours=hours_ago), project=project, endpoint="chat", model="m",
        stream=False, request=core.packed(b"{}"), answer=core.packed(b""), request_bytes=2, answer_bytes=0,
    )  # fmt: skip


@pytest.mark.django_db
def test_what_is_past_its_hours_or_of_who_keeps_nothing_goes(tmp_path: Path) -> None:
    keeps = _project("keeps", keep={"hours": 2.0, "sample": 1.0}).public_id
    off = _project("off").public_id
    forbidden = _project("forbidden", keep={"hours": 2.0, "sample": 1.0}, no_store=True).public_id
    for project, name, age in (
        (keeps, "young", 1), (keeps, "old", 3), (off, "off", 0), (forbidden, "no_store", 0), ("gone", "gone", 0),
    ):  # fmt: skip
        _row(project, name, age)
    assert kept.forget(tmp_path) == 4
    assert [r.request_id for r in KeptRequest.objects.all()] == ["young"]


@pytest.mark.django_db
def test_bodies_are_for_owners_and_administrators_and_reading_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    project = _project("keeps", keep={"hours": 2.0, "sample": 1.0})
    people = {name: Person.objects.create_user(f"{name}@example.com", "x" * 12) for name in ("owner", "member", "out")}
    root = Person.objects.create_superuser("root@example.com", "x" * 12)
    Membership.objects.create(person=people["owner"], project=project, role=Membership.Role.OWNER)
    Membership.objects.create(person=people["member"], project=project, role=Membership.Role.MEMBER)
    for person in (people["owner"], root):
        actions.require_reader(person, project.public_id)
    for person in (people["member"], people["out"]):
        with pytest.raises(Forbidden):
            actions.require_reader(person, project.public_id)
    _row(project.public_id, "req_1", 1)
    Usage.objects.create(
        request_id="req_1", at=timezone.now(), endpoint="chat", model="m", asked="m", outcome="ok",
        project=project.public_id,
    )  # fmt: skip
    call_command("request", "show", "req_1", "--body", "--json")
    assert json.loads(capsys.readouterr().out)["body"]["request"] == "{}"
    told = AuditEntry.objects.get(action="request.read")
    assert told.subject == "req_1"
    assert told.actor.endswith("(command)")
    with pytest.raises(NotFound, match="nothing is kept of req_2"):
        kept.bodies("req_2")


# -- once more


@pytest.fixture
def here(edge: EdgeProcess, settings: Any) -> EdgeProcess:
    """The edge is this machine's."""
    settings.MACHINE = replace(settings.MACHINE, home=edge.home, port=edge.port)
    return edge


@pytest.mark.django_db
def test_a_replay_is_the_gateways_own_and_free(
    here: EdgeProcess, counting: house.Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    project = _project("keeps", keep={"hours": 2.0, "sample": 0.0001})
    house.ANSWERS["again"] = "one two three"
    serve(here, counting.port, Keep(2), project.public_id)
    first = ask(here, stream=True, messages=[{"role": "user", "content": "again"}]).headers["x-request-id"]
    shipped(here, first)
    # From here on hardly any is kept, and the key's project may use no model: neither concerns a replay.
    serve(here, counting.port, Keep(2, 0.0001), project.public_id, allow=())
    house.ANSWERS["again"] = "one two four"
    ingest(here.home / "spool")
    capsys.readouterr()
    call_command("request", "replay", first, "HELPER", "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["before"]["text"] == "one two three"
    assert found["now"]["text"] == "one two four"
    assert 0.5 < found["alike"] < 1.0
    again = found["now"]["request"]
    shipped(here, again)
    assert kept.replays(first) == [again]
    deadline = time.monotonic() + 5
    while not Usage.objects.filter(request_id=again).exists():
        ingest(here.home / "spool")
        assert time.monotonic() < deadline
    row = Usage.objects.get(request_id=again)
    assert (row.project, row.key, row.person, row.cost) == ("", "", "", 0)
    assert row.tags["replay_of"] == first
    assert row.tags["replayed_by"].endswith("(command)")
    assert AuditEntry.objects.filter(action="request.replay", subject=first).count() == 1
    call_command("request", "replay", first, MODEL)
    assert "one two four" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        call_command("request", "replay", first, "nobody")


def test_nobody_else_can_speak_as_the_gateway(edge: EdgeProcess, counting: house.Engine) -> None:
    serve(edge, counting.port, Keep(1))
    secret = (edge.home / "secrets" / "chat").read_text().strip()
    good = keys.ReplayToken("me", "req_1", "p1", time.time() + 60)
    house.ANSWERS["hi"] = "a b"

    def status(token: str) -> int:
        return httpx.post(
            edge.url + CHAT, json=chat(stream=True), headers={"authorization": f"Bearer {token}"}, timeout=15
        ).status_code

    signed = keys.sign_replay(secret, good)
    chat_token = keys.sign_chat(secret, keys.ChatToken("a1", "p1", time.time() + 60))
    assert status(signed) == 200
    assert status(keys.sign_replay("another", good)) == 401
    assert status(signed[:-1] + ("0" if signed[-1] != "0" else "1")) == 401
    assert status(keys.sign_replay(secret, replace(good, expires_at=time.time() - 1))) == 401
    assert status(keys.sign_replay(secret, replace(good, project="nobody"))) == 401
    assert status(keys.REPLAY_PREFIX + chat_token.removeprefix(keys.CHAT_PREFIX)) == 401
    assert status(keys.CHAT_PREFIX + signed.removeprefix(keys.REPLAY_PREFIX)) == 401
    serve(edge, counting.port, None)
    assert status(signed) == 401


# -- reading and comparing


def test_answers_are_read_in_every_shape() -> None:
    stream = (
        b': keep-alive\n\ndata: {"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}\n\n'
        b'data: {"choices":[{"index":0,"delta":{"content":"fo"}}]}\r\n\r\n'
        b'data: {"choices":[{"index":0,"delta":{"content":"ur"}}]}\n\n'
        b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"f"}}]}}]}\n\n'
        b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]},'
        b'"finish_reason":"stop"}]}\n\ndata: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
        b"data: [DONE]\n\n"
    )
    found = answers.read(stream)
    assert (found.text, found.reasoning, found.tools, found.finish) == ("four", "hm", ("f{}",), "stop")
    assert found.usage is not None
    assert (found.usage.prompt, found.usage.completion) == (3, 2)
    assert answers.read(b'{"choices":[{"text":"abc"}]}').text == "abc"
    assert answers.read(b'{"error":{"message":"no"}}').problem == "no"
    assert answers.read(b'{"data":[{"embedding":[0.5,0.25]}]}').text == "2 dimensions: 0.5000, 0.2500, …"
    for broken in (b"", b"{", b"data: {\n\n", b'data: {"choices":7}\n\n', b'{"choices":[{"delta":7}]}', stream[:150]):
        answers.read(broken)


def test_words_that_only_one_has_are_told() -> None:
    left, right = compare.pieces("the cat sat", "the dog sat down")
    assert "".join(p.text for p in left) == "the cat sat"
    assert [p.text for p in left if p.own] == ["cat"]
    assert [p.text for p in right if p.own] == ["dog", " down"]
    assert compare.alike("a b", "a b") == compare.alike("", "") == 1.0
    long = "w " * 20_000
    assert "".join(p.text for p in compare.pieces(long, long + "x")[1]) == long + "x"
    assert compare.columns("one two", "three", 50)[0] == f"{'one two':<23} │ three"
