"""The edge at its door: keys, names, states, errors as OpenAI's clients expect them, and what it does without Redis."""

from __future__ import annotations

import asyncio
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from gateway.core import snapshot
from llmgw import secrets
from llmgw.keys import ChatToken, key_hash, sign_chat
from llmgw.up import redis as redis_server
from tests.gateway.edges import AUTH, KEY, OTHER_KEY, EdgeProcess, catalog, chat, content, endpoint, tenancy
from tests.gateway.upstreams import DONE, Call, answer, delta, engine, finish, usage

CHAT = "/v1/chat/completions"
END = finish() + usage() + DONE


async def good(call: Call) -> None:
    await (call.stream(delta("ok"), END) if call.json.get("stream") else call.whole(answer()))


def error(found: httpx.Response) -> dict[str, Any]:
    assert found.headers["content-type"] == "application/json"
    assert found.headers["x-request-id"].startswith("req_")
    said: dict[str, Any] = found.json()["error"]
    assert set(said) >= {"message", "type", "param", "code"}
    return said


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        (("POST", CHAT, {"authorization": "Bearer llmgw_wrong"}, chat()), 401, "invalid_api_key"),
        (("POST", CHAT, {"authorization": "Basic x"}, chat()), 401, "invalid_api_key"),
        (("POST", CHAT, {"authorization": ""}, chat()), 401, "invalid_api_key"),
        (("POST", CHAT, {}, chat(model="gpt-9")), 404, "model_not_found"),
        (("POST", CHAT, {"authorization": f"Bearer {OTHER_KEY}"}, chat()), 403, "model_forbidden"),
        (("POST", CHAT, {}, b'{"model": '), 400, "invalid_json"),
        (("POST", CHAT, {}, b""), 400, "invalid_json"),
        (("POST", CHAT, {}, b"[1]"), 400, "invalid_json"),
        (("POST", CHAT, {}, b'{"model": "\xff"}'), 400, "invalid_json"),
        (("POST", CHAT, {}, b'{"x": ' + b"[" * 100_000), 400, "invalid_json"),
        (("POST", CHAT, {}, {"messages": []}), 400, "missing_parameter"),
        (("POST", CHAT, {}, {"model": "orchid-8b"}), 400, "missing_parameter"),
        (("POST", CHAT, {}, chat(max_tokens="many")), 400, "invalid_type"),
        (("POST", "/v1/embeddings", {}, {"model": "orchid-8b"}), 400, "missing_parameter"),
        (("GET", CHAT, {}, None), 405, "method_not_allowed"),
        (("POST", "/v1/models", {}, {}), 405, "method_not_allowed"),
        (("POST", "/v1/nothing", {}, {}), 404, "unknown_url"),
        (("OPTIONS", CHAT, {"origin": "https://evil.example"}, None), 405, "method_not_allowed"),
        (("GET", "/v1/models/gpt-9", {}, None), 404, "model_not_found"),
    ],
)
async def test_errors(edge: EdgeProcess, http: httpx.AsyncClient, request_: Any, status: int, code: str) -> None:
    edge.serve()
    method, path, headers, body = request_
    sent = {"content": body} if isinstance(body, bytes) or body is None else {"json": body}
    found = await http.request(method, path, headers=headers, **sent)
    assert found.status_code == status, found.text
    assert error(found)["code"] == code
    assert not [name for name in found.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("state", "code", "words"),
    [
        ("loading", "model_loading", "loading: reading weights"),
        ("parked", "model_parked", "parked: reading weights"),
        ("stopped", "model_stopped", "stopped: reading weights"),
        ("no_capacity", "no_capacity", "no capacity: reading weights"),
        ("serving", "no_capacity", "no replica is ready"),
    ],
)
async def test_a_model_that_cannot_answer(
    edge: EdgeProcess, http: httpx.AsyncClient, state: str, code: str, words: str
) -> None:
    edge.serve()
    entry = snapshot.ModelEntry("busy", (), state, "reading weights from http://10.0.0.9:80/x", 7)
    edge.publish(catalog=catalog(busy=entry))
    found = await http.post(CHAT, json=chat(model="busy"))
    assert found.status_code == 503
    assert found.headers["retry-after"] == "7"
    said = error(found)
    assert said["code"] == code
    assert words in said["message"]
    assert "10.0.0.9" not in said["message"]
    row = edge.settlement(found.headers["x-request-id"])
    assert (row.outcome, row.status, row.code, row.prompt_tokens) == ("refused", 503, code, None)


async def test_a_stopped_system_refuses_whatever_would_answer(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    edge.serve(endpoint(9), stopped=True, stopped_note="maintenance")
    found = await http.post(CHAT, json=chat())
    assert (found.status_code, error(found)["code"]) == (503, "system_stopped")
    assert "stopped by an administrator: maintenance" in error(found)["message"]
    assert found.headers["retry-after"] == "30"
    assert edge.settlement(found.headers["x-request-id"]).code == "system_stopped"
    assert (await http.post(CHAT, json=chat(), headers={"authorization": "Bearer x"})).status_code == 401
    edge.publish(policies=snapshot.Policies())
    assert error(await http.post(CHAT, json=chat()))["code"] != "system_stopped"


async def test_who_leaves_no_row(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    """A stranger's requests are counted, and belong to nobody's books; a known key's refusals do."""
    edge.serve()
    stranger = await http.post(CHAT, json=chat(), headers={"authorization": "Bearer x"})
    known = await http.post(CHAT, json=chat(model="gpt-9"))
    assert edge.settlement(known.headers["x-request-id"]).code == "model_not_found"
    assert stranger.headers["x-request-id"] not in edge.books()


async def test_models(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    edge.serve()
    edge.publish(
        catalog=catalog(**{"orchid-mini": snapshot.ModelEntry("orchid-mini", (), "stopped", context_length=99)})
    )
    listed = (await http.get("/v1/models")).json()
    assert listed["object"] == "list"
    assert [m["id"] for m in listed["data"]] == ["orchid-8b", "orchid-mini"]
    assert listed["data"][1]["context_length"] == 99
    narrow = await http.get("/v1/models", headers={"authorization": f"Bearer {OTHER_KEY}"})
    assert [m["id"] for m in narrow.json()["data"]] == ["orchid-mini"]
    assert (await http.get("/v1/models/Helper")).json()["id"] == "orchid-8b"
    assert (await http.get("/v1/models/helper", headers={"authorization": f"Bearer {OTHER_KEY}"})).status_code == 403
    assert (await http.head("/v1/models")).content == b""


async def test_keys(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    """x-api-key, the chat page's token, expiry by the clock."""
    async with engine(good) as up:
        edge.serve(endpoint(up.port))
        bare = httpx.AsyncClient(base_url=edge.url)
        assert (await bare.post(CHAT, json=chat(), headers={"x-api-key": KEY})).status_code == 200
        chat_secret = secrets.read_or_make(edge.home / "secrets", "chat")

        async def by_token(person: str, project: str, life_s: float) -> httpx.Response:
            token = sign_chat(chat_secret, ChatToken(person, project, time.time() + life_s))
            return await bare.post(CHAT, json=chat(), headers={"authorization": f"Bearer {token}"})

        found = await by_token("a1", "p1", 60)
        assert found.status_code == 200
        intent, _ = edge.books()[found.headers["x-request-id"]]
        assert (intent.person, intent.project, intent.key) == ("a1", "p1", "")
        assert (await by_token("a2", "p1", 60)).status_code == 401
        assert (await by_token("a1", "p9", 60)).status_code == 401
        assert (await by_token("a1", "p1", -1)).status_code == 401
        world = tenancy()
        entry = replace(world.keys[key_hash(KEY)], expires_at=time.time() + 0.4)
        edge.publish(tenancy=replace(world, keys={key_hash(KEY): entry}))
        assert (await http.post(CHAT, json=chat())).status_code == 200
        await asyncio.sleep(0.4)
        expired = await http.post(CHAT, json=chat())
        assert expired.status_code == 401
        assert "expired" in error(expired)["message"]
        await bare.aclose()


async def test_b045_a_revoked_key(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    """A stream that runs is allowed to end; the next request is refused."""
    gate = asyncio.Event()

    async def script(call: Call) -> None:
        await call.stream(delta("a"), end=False)
        await gate.wait()
        await call.piece(END)
        await call.raw(b"0\r\n\r\n")

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        running = asyncio.ensure_future(http.post(CHAT, json=chat(stream=True)))
        while not up.calls:
            await asyncio.sleep(0.01)
        world = tenancy()
        began = time.monotonic()
        edge.publish(wait=False, tenancy=replace(world, keys={}))
        while (await http.post(CHAT, json=chat(model="gpt-9"))).status_code != 401:
            assert time.monotonic() - began < 2
        gate.set()
        assert content((await running).content) == "a"
        edge.publish(wait=False, tenancy=world)
        began = time.monotonic()
        while (await http.get("/v1/models")).status_code != 200:
            assert time.monotonic() - began < 2


async def test_b045_a_lost_announcement_costs_a_second(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    edge.serve()
    with edge.client() as client:
        world = snapshot.encode(replace(tenancy(), keys={}, version=int(time.time() * 1000)))
        client.set(snapshot.PREFIX + "tenancy", world)
        client.hset(snapshot.VERSIONS, "tenancy", str(int(time.time() * 1000) + 0))
        client.hset(snapshot.VERSIONS, "tenancy", str(snapshot.decode("tenancy", world).version))
    began = time.monotonic()
    while (await http.get("/v1/models")).status_code != 401:
        assert time.monotonic() - began < 2
        await asyncio.sleep(0.02)


async def test_an_alias_becomes_the_name_that_the_engine_knows(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async with engine(good) as up:
        edge.serve(endpoint(up.port))
        for stream in (False, True):
            found = await http.post(CHAT, json=chat(model="HELPER", stream=stream, seed=1.50))
            assert found.status_code == 200
            assert found.headers["x-llmgw-served-model"] == "orchid-8b"
            assert up.calls[-1].json["model"] == "orchid-8b"
            assert b"1.5" in up.calls[-1].body
            intent, _ = edge.books()[found.headers["x-request-id"]]
            assert (intent.asked, intent.model) == ("HELPER", "orchid-8b")


async def test_the_body_passes_untouched(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    body = b' {"model":"orchid-8b" , "messages":[{"role":"user","content":"\\u00e9 \xc3\xa9"}], "x": 1.0e3}\n'
    async with engine(good) as up:
        edge.serve(endpoint(up.port))
        await http.post(CHAT, content=body)
        assert up.calls[0].body == body


async def test_embeddings_and_completions(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async def script(call: Call) -> None:
        if call.path == "/v1/embeddings":
            usage = {"prompt_tokens": 4, "total_tokens": 4}
            await call.whole({"object": "list", "data": [{"embedding": [0.5] * 1000, "index": 0}], "usage": usage})
        else:
            await call.whole(answer())

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        found = await http.post("/v1/embeddings", json={"model": "orchid-8b", "input": "the cat"})
        assert len(found.json()["data"][0]["embedding"]) == 1000
        row = edge.settlement(found.headers["x-request-id"])
        assert (row.prompt_tokens, row.completion_tokens, row.estimated) == (4, None, False)
        plain = await http.post("/v1/completions", json={"model": "orchid-8b", "prompt": "a"})
        assert plain.status_code == 200
        assert [c.path for c in up.calls] == ["/v1/embeddings", "/v1/completions"]
        edge.publish(catalog=snapshot.Catalog(models={"orchid-8b": snapshot.ModelEntry("orchid-8b", (), "serving")}))
        wrong = await http.post("/v1/embeddings", json={"model": "orchid-8b", "input": "the cat"})
    assert error(wrong)["code"] == "unsupported_endpoint"


async def test_without_redis(own_edge: EdgeProcess, tmp_path: Path) -> None:
    """From its disk at the start, with the last good snapshot while Redis is away, and up to date when it is back."""
    socket = tmp_path / "r.sock"
    binary = redis_server.binary()
    assert binary is not None

    def start_redis() -> subprocess.Popen[bytes]:
        process = subprocess.Popen([binary, *redis_server.arguments(socket, tmp_path)], stdout=subprocess.DEVNULL)
        while not socket.exists():
            time.sleep(0.01)
        return process

    redis = start_redis()
    own_edge.redis_url = f"unix://{socket}"
    own_edge.start()
    try:
        async with engine(good) as up, httpx.AsyncClient(base_url=own_edge.url, headers=AUTH, timeout=10) as http:
            assert (await http.get("/ready")).status_code == 503
            assert set((await http.get("/ready")).json()["missing"]) == {"tenancy", "catalog", "endpoints"}
            own_edge.serve(endpoint(up.port))
            redis.kill()
            redis.wait()
            socket.unlink()
            for _ in range(3):
                assert (await http.post(CHAT, json=chat())).status_code == 200
            own_edge.kill()
            own_edge.start()
            own_edge.wait_for("/ready")
            assert (await http.post(CHAT, json=chat())).status_code == 200
            redis = start_redis()
            own_edge.publish(tenancy=replace(tenancy(), keys={}))
            assert (await http.post(CHAT, json=chat())).status_code == 401
    finally:
        redis.kill()
        redis.wait()


def test_b047_no_secret_anywhere(own_edge: EdgeProcess) -> None:
    """Wrong keys, broken headers, failing engines at debug level: no canary in the log, the books or an answer."""
    canary = "CANARY-CLIENT-KEY-1234567890"
    own_edge.start(LLMGW_DEBUG="1")
    own_edge.serve(endpoint(9))
    said = ""
    for headers, query in (
        ({"authorization": f"Bearer {canary}"}, ""),
        ({"authorization": canary}, ""),
        ({"x-api-key": canary}, ""),
        (AUTH, f"?key={canary}"),
    ):
        said += httpx.post(f"{own_edge.url}{CHAT}{query}", json=chat(), headers=headers).text
    with (
        openai.OpenAI(api_key=KEY, base_url=f"{own_edge.url}/v1", max_retries=0) as client,
        pytest.raises(openai.APIError),
    ):
        client.chat.completions.create(model="orchid-8b", messages=[{"role": "user", "content": "hi"}])
    books = "".join(p.read_text() for p in (own_edge.home / "spool").glob("*.jsonl"))
    secret = secrets.read_or_make(own_edge.home / "secrets", "engine")
    for text in (said, books, (own_edge.home / "edge.log").read_text()):
        assert canary not in text
        assert KEY not in text
        assert secret not in text
