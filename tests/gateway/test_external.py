"""Models served outside the cluster: their keys, their refusals, TLS; and what never leaves with a request."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from gateway.core import snapshot
from llmgw import secrets
from tests.agent.pki import Authority
from tests.gateway.conftest import Launch, _edge_process, _end
from tests.gateway.edges import KEY, MODEL, EdgeProcess, chat, content, endpoint, scope
from tests.gateway.providers import NAME, SECRET, THEIRS, Keys, external, own, serve, server_tls, wait_for_standing
from tests.gateway.test_real_engine import free_port
from tests.gateway.upstreams import DONE, Call, answer, delta, engine, finish, usage

CHAT = "/v1/chat/completions"
END = finish() + usage() + DONE
ASK = chat(model=NAME)


async def good(call: Call) -> None:
    await (call.stream(delta("ok"), END) if call.json.get("stream") else call.whole(answer()))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def trusting_edge(redis_url: str, authority: Authority) -> Iterator[EdgeProcess]:
    found = _edge_process(redis_url)
    found.start(LLMGW_CA_FILE=str(authority.pem))
    yield found
    _end(found)


@pytest.fixture
def edge(trusting_edge: EdgeProcess) -> EdgeProcess:
    """One that trusts the tests' own authority."""
    return trusting_edge


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


def sent(call: Call) -> str:
    return call.headers["authorization"].removeprefix("Bearer ")


async def test_a_request_goes_out_with_the_providers_key_and_name(
    edge: EdgeProcess, http: httpx.AsyncClient, keys: Keys
) -> None:
    async def script(call: Call) -> None:
        await call.whole(
            answer(), 200, "set-cookie: a=b", "x-ratelimit-remaining-requests: 5", "openai-organization: o"
        )

    async with engine(script) as there:
        serve(edge, external(f"http://127.0.0.1:{there.port}/base", keys.write(1, SECRET)))
        private = {"x-api-key": "mine", "cookie": "c=d", "traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"}
        found = await http.post(CHAT, json=chat(model=NAME, temperature=0), headers=private)
        assert found.status_code == 200, found.text
        call = there.calls[0]
        assert (call.path, call.json["model"], call.json["temperature"]) == ("/base" + CHAT, THEIRS, 0)
        assert sent(call) == SECRET
        assert call.headers["x-request-id"] == found.headers["x-request-id"]
        assert set(call.headers) == {
            "host", "user-agent", "authorization", "content-type", "accept", "x-request-id", "content-length",
        }  # fmt: skip
        names = {
            "x-llmgw-served-model": NAME,
            "x-llmgw-replica": f"external:{NAME}#1",
            "x-llmgw-route": "the only replica",
        }
        assert {k: found.headers[k] for k in names} == names
        assert not {"set-cookie", "x-ratelimit-remaining-requests", "openai-organization"} & set(found.headers)
    row = edge.settlement(found.headers["x-request-id"])
    assert (row.replica, row.prompt_tokens, row.completion_tokens, row.served) == (f"external:{NAME}#1", 11, 2, "")


async def test_a_refused_key_is_out_until_its_file_changes(
    edge: EdgeProcess, http: httpx.AsyncClient, keys: Keys
) -> None:
    async def script(call: Call) -> None:
        if (key := sent(call)).startswith(SECRET):
            await call.whole({"error": {"message": f"Incorrect API key provided: {key}"}}, int(key[-3:]))
        else:
            await good(call)

    async with engine(script) as there:
        url, fine = f"http://127.0.0.1:{there.port}", keys.write(1, "fine")
        bad = {f"refused-{status}": (status, keys.write(status, f"{SECRET}-{status}")) for status in (401, 402, 403)}
        serve(edge, *[external(url, b, fine, weights=(1000, 0.001), name=name) for name, (_, b) in bad.items()])
        for name, (status, _) in bad.items():
            before = len(there.calls)
            for _ in range(3):
                assert (await http.post(CHAT, json=chat(model=name))).status_code == 200
            assert [sent(c) for c in there.calls[before:]] == [f"{SECRET}-{status}", "fine", "fine", "fine"]
        for name, (status, _) in bad.items():
            wait_for_standing(edge, name, ["external_key_refused", ""])
            report = edge.live()["external"][name][0]
            assert report["endpoint"] == f"external:{name}#1"
            assert f"({status})" in report["sentence"]
            assert abs(report["since"] - time.time()) < 10
            assert f"external_key_refused: external:{name}#1 was refused" in edge.words()
            keys.write(status, "better")
        rotated = time.monotonic()
        for name in bad:
            wait_for_standing(edge, name, ["", ""])
            assert (await http.post(CHAT, json=chat(model=name))).headers["x-llmgw-replica"] == f"external:{name}#1"
        assert time.monotonic() - rotated < 3


async def test_without_a_usable_key_a_model_is_not_offered(
    edge: EdgeProcess, http: httpx.AsyncClient, keys: Keys, tmp_path: Path
) -> None:
    async def script(call: Call) -> None:
        await call.whole({"error": {"message": "no"}}, 401)

    (tmp_path / "two").write_text("a key\nand another\n")
    async with engine(script) as there:
        url, missing = f"http://127.0.0.1:{there.port}", str(tmp_path / "missing")
        model = external(url, keys.write(1, "bad"), missing, str(tmp_path / "two"), str(edge.home / "secrets/engine"))
        serve(edge, model, wait=False)
        wait_for_standing(edge, NAME, ["", *["external_key_unreadable"] * 3])
        found = await http.post(CHAT, json=ASK)
        assert (found.status_code, found.json()["error"]["code"]) == (503, "no_usable_key")
        said = found.json()["error"]["message"]
        assert "key 1 was refused by its provider (401)" in said
        assert "key 2 is left out: it cannot be read (No such file or directory)" in said
        assert "key 3 is left out: it holds more than one word" in said
        assert "key 4 is left out: it is one of llmgw's own secrets" in said
        assert str(tmp_path) not in found.text, "no path for a client"
        assert found.headers["retry-after"]
        assert len(there.calls) == 1
        Path(missing).write_text("x")
        wait_for_standing(edge, NAME, ["external_key_refused", "external_key_loose", *["external_key_unreadable"] * 2])


async def test_a_file_that_is_written_anew_is_used_within_two_seconds_and_no_stream_is_hurt(
    edge: EdgeProcess, http: httpx.AsyncClient, keys: Keys
) -> None:
    go_on = asyncio.Event()

    async def script(call: Call) -> None:
        if call.json.get("stream"):
            await call.stream(delta("a"), end=False)
            await go_on.wait()
            await call.piece(delta("b"))
            await call.piece(END)
            await call.raw(b"0\r\n\r\n")
        else:
            await call.whole(answer())

    async with engine(script) as there:
        file = keys.write(1, "old-key")
        serve(edge, external(f"http://127.0.0.1:{there.port}", file))
        async with http.stream("POST", CHAT, json=chat(model=NAME, stream=True)) as stream:
            pieces = stream.aiter_bytes()
            first = await anext(pieces)
            Path(file).write_text("")  # as an editor leaves it for a moment
            await asyncio.sleep(0.05)
            Path(file).write_text("new-key")
            written = time.monotonic()
            while sent(there.calls[-1]) != "new-key":
                assert (await http.post(CHAT, json=ASK)).status_code == 200
                assert time.monotonic() - written < 2
            go_on.set()
            rest = b"".join([piece async for piece in pieces])
    assert content(first + rest) == "ab"


async def test_shares_follow_the_weights(edge: EdgeProcess, http: httpx.AsyncClient, keys: Keys) -> None:
    async with engine(good) as there:
        model = external(f"http://127.0.0.1:{there.port}", keys.write(1, "a"), keys.write(2, "b"), weights=(2, 1))
        serve(edge, model)
        long = chat(model=NAME, messages=[{"role": "user", "content": "the same text again " * 60}], user="one")
        for _ in range(12):
            assert (await http.post(CHAT, json=long)).status_code == 200
        assert Counter(sent(c) for c in there.calls) == {"a": 8, "b": 4}
        there.calls.clear()
        await asyncio.gather(*[http.post(CHAT, json=ASK) for _ in range(30)])
        assert 17 <= Counter(sent(c) for c in there.calls)["a"] <= 23


async def test_a_broken_provider_is_tried_on_another_key_and_a_callers_fault_is_not(
    edge: EdgeProcess, http: httpx.AsyncClient, keys: Keys
) -> None:
    async def script(call: Call) -> None:
        if "wrong" in call.json:
            await call.whole({"error": {"message": f"no such thing at http://10.0.0.1/x for {sent(call)}"}}, 422)
        elif sent(call) == "a-key":
            await call.whole({"error": {"message": "oops sk-abcdefgh12345"}}, 500)
        else:
            await good(call)

    async with engine(script) as there:
        url = f"http://127.0.0.1:{there.port}"
        serve(edge, external(url, keys.write(1, "a-key"), keys.write(2, "b-key"), weights=(1000, 0.001)))
        found = await http.post(CHAT, json=ASK)
        assert (found.status_code, found.headers["x-llmgw-replica"]) == (200, f"external:{NAME}#2")
        row = edge.settlement(found.headers["x-request-id"])
        assert row.hops == (f"{NAME}@external:{NAME}#1: the engine answered with status 500: oops …",)
        there.calls.clear()
        found = await http.post(CHAT, json=chat(model=NAME, wrong=True))
        assert (found.status_code, found.json()["error"]["message"]) == (422, "no such thing at … for …")
        assert len(there.calls) == 1


async def test_tls_with_a_kept_connection_and_a_certificate_that_must_fit(
    edge: EdgeProcess, http: httpx.AsyncClient, keys: Keys, authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other")
    async with engine(good, tls=server_tls(authority)) as there, engine(good, tls=server_tls(other)) as stranger:
        file = keys.write(1, SECRET)
        serve(
            edge,
            external(f"https://localhost:{there.port}", file),
            external(f"https://127.0.0.1:{stranger.port}", file, name="stranger"),
            external(f"https://localhost.localdomain:{there.port}", file, name="misnamed"),
            external(f"http://127.0.0.1:{there.port}", file, name="in-clear"),
        )
        for stream in (False, True, False):
            found = await http.post(CHAT, json=chat(model=NAME, stream=stream))
            assert found.status_code == 200, found.text
        assert there.connections == 1, "it is kept"
        for name in ("stranger", "misnamed", "in-clear"):
            found = await http.post(CHAT, json=chat(model=name))
            assert found.status_code == 502, name
        found = await http.post(CHAT, json=chat(model="stranger"))
        assert "its certificate is not trusted here" in found.json()["error"]["message"]
        assert (len(there.calls), len(stranger.calls)) == (3, 0), "no key is sent to who cannot prove its name"


async def test_an_own_engine_of_the_same_name_is_not_asked_any_more(
    edge: EdgeProcess, http: httpx.AsyncClient, keys: Keys
) -> None:
    async with engine(good) as inside, engine(good) as there:
        left = endpoint(inside.port, model=NAME, draining=True)
        serve(edge, external(f"http://127.0.0.1:{there.port}", keys.write(1, "k")), endpoints=(left,))
        assert (await http.post(CHAT, json=ASK)).status_code == 200
        assert (len(inside.calls), len(there.calls)) == (0, 1)
        stopped = snapshot.ModelEntry(
            **{**_fields(external("http://x", "/x")), "state": "stopped", "reason": "stopped"}
        )
        serve(edge, stopped, wait=False)
        found = await http.post(CHAT, json=ASK)
        assert (found.status_code, found.json()["error"]["code"]) == (503, "model_stopped")


def _fields(entry: snapshot.ModelEntry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in entry.__dataclass_fields__}


@pytest.mark.parametrize("level", ["in_cluster", "no_store"])
async def test_what_may_not_leave_does_not_by_any_way(
    edge: EdgeProcess, http: httpx.AsyncClient, keys: Keys, level: str
) -> None:
    async with engine(good) as there:
        away = external(f"http://127.0.0.1:{there.port}", keys.write(1, "k"))
        kept = snapshot.Scope("o1", "t1", "p1", **{level: True})  # type: ignore[arg-type]
        serve(edge, away, own(fallbacks=(NAME,)), scope=kept)
        found = await http.post(CHAT, json=ASK)
        assert (found.status_code, found.json()["error"]["code"]) == (403, "residency")
        assert "this project's requests may" in found.json()["error"]["message"]
        assert (await http.post(CHAT, json=chat())).status_code == 503
        listed = (await http.get("/v1/models")).json()["data"]
        assert [m["id"] for m in listed] == [MODEL]
        assert (await http.get(f"/v1/models/{NAME}")).status_code == 403
        assert there.calls == []
        serve(edge, away, scope=scope())
        listed = {m["id"]: m for m in (await http.get("/v1/models")).json()["data"]}
        assert (listed[NAME]["external"], listed[MODEL]["external"]) == (True, False)


async def test_a_key_is_nowhere_but_with_its_provider(edge: EdgeProcess, http: httpx.AsyncClient, keys: Keys) -> None:
    """A canary: over answers, books, log, live figures, metrics, snapshot, command line."""
    script = iter([401, 500, 400, 429, 200, 0])

    async def provider(call: Call) -> None:
        status, echo = next(script), f"your key {sent(call)} and headers {call.headers}"
        if status == 0:
            call.reset()
        else:
            await call.whole({"error": {"message": echo}} if status >= 400 else answer(), status)

    async with engine(provider) as there:
        seen, names = b"", [f"canary-{number}" for number in range(6)]
        url, file = f"http://127.0.0.1:{there.port}", keys.write(1, SECRET)
        serve(edge, *[external(url, file, name=name) for name in names], retries=0)
        for name in names:
            found = await http.post(CHAT, json=chat(model=name))
            seen += found.content + str(found.headers.raw).encode()
        assert len(there.calls) == 6
        assert all(sent(c) == SECRET for c in there.calls)
    await asyncio.sleep(1.1)
    with edge.client() as client:
        read = {
            b"string": client.get,
            b"hash": client.hgetall,
            b"set": client.smembers,
            b"zset": lambda key: client.zrange(key, 0, -1),
            b"list": lambda key: client.lrange(key, 0, -1),
        }
        for key in client.scan_iter("*"):
            seen += key + repr(read[client.type(key)](key)).encode()
    for path in [p for p in edge.home.rglob("*") if p.is_file()]:
        seen += path.read_bytes()
    seen += Path(f"/proc/{edge.pid}/cmdline").read_bytes()
    assert b"canary-5" in seen
    assert SECRET.encode() not in seen


def test_the_official_client(edge: EdgeProcess, keys: Keys, authority: Authority) -> None:
    async def run() -> None:
        async with engine(good, tls=server_tls(authority)) as there:
            serve(edge, external(f"https://localhost:{there.port}", keys.write(1, SECRET)))
            async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{edge.url}/v1", max_retries=0) as client:
                said = await client.chat.completions.create(model=NAME, messages=[{"role": "user", "content": "hi"}])
                assert said.choices[0].message.content == "ok"
                parts = await client.chat.completions.create(
                    model=NAME, messages=[{"role": "user", "content": "hi"}], stream=True
                )
                assert "".join([p.choices[0].delta.content or "" async for p in parts if p.choices]) == "ok"

    asyncio.run(run())


def test_ssl_is_what_verifies() -> None:
    """The default context checks names and certificates; nobody turns that off here."""
    from gateway.edge.external import Externals
    from gateway.edge.replicas import Fleet

    context = Externals(Fleet("x"), ())._context("https://a")
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


@pytest.mark.slow
async def test_a_gateway_behind_tls_is_a_provider(
    edge: EdgeProcess, keys: Keys, authority: Authority, own_edge: EdgeProcess, launch: Launch
) -> None:
    """A second edge with a real llama.cpp, behind TLS of an own authority: whole, streamed, embeddings."""
    replica, port = "r-00000000ab", free_port()
    launch(
        port, replica, secrets.read_or_make(own_edge.home / "secrets", "engine"), "--embeddings", "--pooling", "mean"
    )
    own_edge.start()
    own_edge.serve(endpoint(port, replica, THEIRS))
    there = snapshot.ModelEntry(THEIRS, (), "serving", kinds=("chat", "completions", "embeddings"), origin="tiny")
    own_edge.publish(catalog=snapshot.Catalog(models={THEIRS: there}))
    async with tls_before(own_edge.port, server_tls(authority)) as secure:
        serve(edge, external(f"https://localhost:{secure}", keys.write(1, KEY)))
        count = {"model": NAME, "messages": [{"role": "user", "content": "count to 12"}], "temperature": 0}
        async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{edge.url}/v1", max_retries=0) as client:
            said = await client.chat.completions.with_raw_response.create(**count)
            whole = said.parse()
            assert whole.choices[0].message.content == "1 2 3 4 5 6 7 8 9 10 11 12"
            parts = [p async for p in await client.chat.completions.create(**count, stream=True)]
            streamed = "".join(p.choices[0].delta.content or "" for p in parts if p.choices)
            assert streamed == "1 2 3 4 5 6 7 8 9 10 11 12"
            vector = await client.embeddings.create(model=NAME, input="a word")
            assert len(vector.data[0].embedding) > 8
    here = edge.settlement(said.headers["x-request-id"])
    assert whole.usage is not None
    assert (here.prompt_tokens, here.completion_tokens) == (whole.usage.prompt_tokens, whole.usage.completion_tokens)
    assert here.replica == f"external:{NAME}#1"
    assert len(own_edge.books()) == 3


@contextlib.asynccontextmanager
async def tls_before(port: int, tls: ssl.SSLContext) -> AsyncIterator[int]:
    """A proxy that ends TLS, as stands before most providers."""
    tasks: set[asyncio.Task[Any]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        inner, to = await asyncio.open_connection("127.0.0.1", port)
        try:
            await asyncio.gather(_pump(reader, to), _pump(inner, writer))
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            to.transport.abort()
            writer.transport.abort()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
