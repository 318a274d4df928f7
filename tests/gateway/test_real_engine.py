"""The whole inference path on a real llama.cpp server, as clients and operators see it."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from gateway.core import snapshot
from llmgw import secrets
from llmgw.keys import engine_key
from tests.gateway.conftest import Launch, llamacpp
from tests.gateway.edges import AUTH, KEY, EdgeProcess, catalog, content, endpoint, events

REPLICA = "r-00000000aa"
COUNT = [{"role": "user", "content": "count to 12"}]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as s:
        return int(s.getsockname()[1])


@pytest.fixture(scope="module")
def engine_port(shared_edge: EdgeProcess, weights: Path) -> Iterator[int]:
    port = free_port()
    key = engine_key(secrets.read_or_make(shared_edge.home / "secrets", "engine"), REPLICA)
    process = llamacpp(weights, port, key)
    yield port
    process.kill()
    process.wait(10)


@pytest.fixture
def gateway(edge: EdgeProcess, engine_port: int) -> EdgeProcess:
    serve(edge, engine_port)
    return edge


def serve(edge: EdgeProcess, port: int) -> None:
    edge.serve(endpoint(port, REPLICA, "tiny"))
    edge.publish(catalog=catalog(tiny=snapshot.ModelEntry("tiny", ("small",), "serving")))


@pytest.fixture
def client(gateway: EdgeProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key=KEY, base_url=f"{gateway.url}/v1", max_retries=0) as found:
        yield found


def test_a_streamed_chat_leaves_a_row_with_the_engines_counts(gateway: EdgeProcess) -> None:
    body = {"model": "tiny", "messages": COUNT, "stream": True, "temperature": 0}
    found = httpx.post(f"{gateway.url}/v1/chat/completions", json=body, headers=AUTH)
    assert found.status_code == 200, found.text
    assert found.headers["content-type"] == "text/event-stream"
    assert found.headers["x-llmgw-served-model"] == "tiny"
    assert found.headers["x-llmgw-replica"] == REPLICA
    assert found.headers["x-llmgw-route"] == "the only replica"
    assert "12" in content(found.content)
    assert events(found.content)[-1] == "[DONE]"
    assert b'"usage"' not in found.content
    row = gateway.settlement(found.headers["x-request-id"])
    assert (row.outcome, row.status, row.replica, row.node) == ("ok", 200, REPLICA, "node-1")
    assert row.prompt_tokens
    assert row.completion_tokens
    assert row.completion_tokens > 5
    assert not row.estimated
    assert row.ttft_ms is not None
    assert 0 < row.ttft_ms < row.duration_ms


def test_the_openai_sdk(client: openai.OpenAI, gateway: EdgeProcess) -> None:
    whole = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "3+4=?"}], temperature=0)
    assert whole.choices[0].message.content == "7"
    assert whole.usage
    streamed = client.chat.completions.create(
        model="small",
        messages=[{"role": "user", "content": "3+4=?"}],
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(streamed)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "7"
    assert [c.usage.completion_tokens for c in chunks if c.usage] == [whole.usage.completion_tokens]
    plain = client.completions.create(model="tiny", prompt="3+4=", max_tokens=3)
    assert plain.usage
    assert [m.id for m in client.models.list()] == ["orchid-8b", "tiny"]
    assert client.models.retrieve("small").id == "tiny"
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(api_key="wrong", base_url=f"{gateway.url}/v1", max_retries=0).models.list()
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-9", messages=[{"role": "user", "content": "x"}])
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


def test_streamed_completions_hide_the_usage_that_nobody_asked_for(client: openai.OpenAI, gateway: EdgeProcess) -> None:
    raw = client.completions.with_raw_response.create(
        model="tiny", prompt="3+4=", max_tokens=3, stream=True, temperature=0
    )
    assert not any(c.usage for c in raw.parse())
    row = gateway.settlement(raw.headers["x-request-id"])
    assert row.completion_tokens
    assert not row.estimated


def test_a_prompt_that_is_too_long_is_the_callers_error(client: openai.OpenAI, gateway: EdgeProcess) -> None:
    long = [{"role": "user", "content": "x y " * 5000}]
    for stream in (False, True):
        before = set(gateway.books())
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="tiny", messages=long, stream=stream)  # type: ignore[call-overload]
        assert caught.value.code == "context_length_exceeded"
        assert gateway.last(before=before).outcome == "refused"


def test_an_engine_killed_in_mid_stream(own_edge: EdgeProcess, launch: Launch) -> None:
    """The SDK raises instead of hanging, and the row says why."""
    port = free_port()
    secret = secrets.read_or_make(own_edge.home / "secrets", "engine")
    engine = launch(port, REPLICA, secret)
    own_edge.start()
    serve(own_edge, port)
    body = {"model": "tiny", "messages": [{"role": "user", "content": "count to 99"}], "stream": True}
    body["max_tokens"] = 3500
    body["ignore_eos"] = True
    with httpx.stream("POST", f"{own_edge.url}/v1/chat/completions", json=body, headers=AUTH, timeout=10) as found:
        seen = b""
        for data in found.iter_raw():
            if not seen:
                engine.kill()
            seen += data
    last = events(seen)[-1]
    assert last["error"]["code"] == "engine_failed"
    row = own_edge.settlement(found.headers["x-request-id"])
    assert (row.outcome, row.estimated) == ("engine_failed", True)
    assert row.completion_tokens
    with openai.OpenAI(api_key=KEY, base_url=f"{own_edge.url}/v1", max_retries=0) as client:
        with pytest.raises(openai.InternalServerError):
            client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "hi"}])
        launch(port, REPLICA, secret)
        answer = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "3+4=?"}])
        assert answer.choices[0].message.content


def busy(port: int, secret: str) -> int:
    key = engine_key(secret, REPLICA)
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", headers={"authorization": f"Bearer {key}"}).text
    line = next(x for x in text.splitlines() if x.startswith("llamacpp:requests_processing"))
    return int(float(line.split()[-1]))


def test_a_client_that_leaves_frees_the_engine(gateway: EdgeProcess, engine_port: int) -> None:
    secret = secrets.read_or_make(gateway.home / "secrets", "engine")
    body = {"model": "tiny", "messages": COUNT, "stream": True, "max_tokens": 3900, "ignore_eos": True}
    with httpx.stream("POST", f"{gateway.url}/v1/chat/completions", json=body, headers=AUTH, timeout=10) as found:
        next(found.iter_raw())
    began = time.monotonic()
    while busy(engine_port, secret):
        assert time.monotonic() - began < 1, "the engine still works for nobody"
        time.sleep(0.01)
    row = gateway.settlement(found.headers["x-request-id"])
    assert (row.outcome, row.status) == ("client_left", 200)


@pytest.mark.usefixtures("gateway")
def test_revealed_nowhere(gateway: EdgeProcess) -> None:
    """No key is in the log or in the books."""
    httpx.get(f"{gateway.url}/v1/models", headers={"authorization": "Bearer CANARY-CLIENT-KEY-1234567890"})
    httpx.get(f"{gateway.url}/v1/models?key=CANARY-CLIENT-KEY-1234567890")
    text = gateway.words() + "".join(p.read_text() for p in (gateway.home / "spool").glob("*.jsonl"))
    assert "CANARY" not in text
    assert KEY not in text
    assert subprocess.run(["ps", "-o", "args=", "-p", str(gateway.pid)], capture_output=True, text=True, check=True)
