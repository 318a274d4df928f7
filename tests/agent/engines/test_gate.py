"""The gate before engines that leave paths open: nothing but /health passes without the key."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.launchers.gate import Gate
from agent.launchers.trtllm_serve import OPTIONS, guard

KEY = "k" * 43


def asked(path: str, *authorization: str, kind: str = "http") -> list[Any]:
    """What was sent; "through" where it came to the application."""
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        sent.append("through")

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"authorization", a.encode()) for a in authorization]
    asyncio.run(Gate(app, KEY)({"type": kind, "path": path, "headers": headers}, None, send))
    return sent


@pytest.mark.parametrize(
    "path", ["/", "/v1/models", "/metrics", "/tokenize", "/invocations", "/health/", "/healthz", ""]
)
@pytest.mark.parametrize(
    "authorization",
    [
        (),
        ("",),
        ("Bearer",),
        (f"Bearer {KEY}x",),
        (f"Bearer {KEY[:-1]}",),
        (KEY,),
        (f"Basic {KEY}",),
        ("Bearer a", f"Bearer {KEY}"),
    ],
)
def test_without_the_key_nothing_passes(path: str, authorization: tuple[str, ...]) -> None:
    first, second = asked(path, *authorization)
    assert first["status"] == 401
    assert b"unauthorized" in second["body"]
    assert KEY.encode() not in second["body"]


def test_what_passes() -> None:
    assert asked("/v1/models", f"Bearer {KEY}") == ["through"]
    assert asked("/health") == ["through"]
    assert asked("", kind="lifespan") == ["through"]


def test_a_websocket_is_closed() -> None:
    assert asked("/v1/realtime", kind="websocket") == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.parametrize("key", [None, ""])
def test_no_key_no_engine(key: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLMGW_ENGINE_KEY", raising=False)
    with pytest.raises(RuntimeError, match="would answer anybody"):
        Gate(None, key)


def test_a_server_of_another_shape_does_not_start() -> None:
    """Were its application kept elsewhere one day, it must not serve without the gate."""

    class Server:
        pass

    guard(Server, KEY)
    with pytest.raises(AttributeError):
        Server()


def test_what_turns_the_metrics_on() -> None:
    assert OPTIONS == {"return_perf_metrics": True, "enable_iter_perf_stats": True}
