"""A real llama.cpp: its stream put together is the answer that it gives whole."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway.core import snapshot
from llmgw import secrets
from llmgw.keys import engine_key
from tests.gateway.conftest import llamacpp
from tests.gateway.edges import KEY, EdgeProcess, catalog, endpoint, events
from tests.gateway.reuse.worlds import ask, now, said, scopes

REPLICA = "r-00000000ca"


@pytest.fixture
def gateway(edge: EdgeProcess, weights: Path) -> Iterator[EdgeProcess]:
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = int(s.getsockname()[1])
    process = llamacpp(weights, port, engine_key(secrets.read_or_make(edge.home / "secrets", "engine"), REPLICA))
    edge.publish(
        tenancy=scopes(snapshot.Reuse(3600.0, since=now())),
        catalog=catalog(tiny=snapshot.ModelEntry("tiny", (), "serving")),
        endpoints=snapshot.Endpoints(endpoints=(endpoint(port, REPLICA, "tiny"),)),
        policies=snapshot.Policies(),
    )
    yield edge
    process.kill()
    process.wait(10)


def plain(choices: list[dict[str, Any]]) -> list[Any]:
    return [(c["index"], c["message"], c["finish_reason"]) for c in choices]


def test_its_stream_is_its_answer(gateway: EdgeProcess) -> None:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "count to 12"}], "temperature": 0}
    assert said(ask(gateway, {**body, "stream": True})) == "miss"
    again = ask(gateway, body)
    anew = ask(gateway, body, cache_control="no-cache")
    assert (said(again), said(anew)) == ("hit", "bypass")
    found, fresh = again.json(), anew.json()
    assert plain(found["choices"]) == plain(fresh["choices"])
    assert found["object"] == fresh["object"]
    for count in ("prompt_tokens", "completion_tokens"):
        assert found["usage"][count] == fresh["usage"][count]


def test_the_sdk_reads_what_is_given_again(gateway: EdgeProcess) -> None:
    with openai.OpenAI(api_key=KEY, base_url=f"{gateway.url}/v1", max_retries=0, http_client=httpx_client()) as client:
        asked: Any = {"model": "tiny", "messages": [{"role": "user", "content": "3+4=?"}], "temperature": 0}
        whole = client.chat.completions.create(**asked)
        chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "7"
        assert [c.usage for c in chunks if c.usage] == [whole.usage]


def httpx_client() -> Any:
    return openai.DefaultHttpxClient(verify=False)


def test_completions(gateway: EdgeProcess) -> None:
    body = {"model": "tiny", "prompt": "3+4=", "max_tokens": 3, "seed": 7, "logprobs": 2}
    streamed = ask(gateway, {**body, "stream": True}, "/v1/completions")
    again = ask(gateway, body, "/v1/completions")
    assert (said(streamed), said(again)) == ("miss", "hit")
    text = "".join(c["text"] for e in events(streamed.content)[:-1] for c in e["choices"])
    assert again.json()["choices"][0]["text"] == text
    assert again.json()["usage"]["completion_tokens"]
