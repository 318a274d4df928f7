"""Who asks is remembered, and never for longer than what was known of it."""

from __future__ import annotations

import pytest

from gateway.core.errors import WrongKey
from gateway.core.snapshot import KeyEntry, Scope, Tenancy
from gateway.edge import callers
from gateway.edge.asgi import AsgiClient
from gateway.edge.callers import Callers
from llmgw.keys import ChatToken, key_hash, sign_chat

KEY = "llmgw_" + "k" * 43


def asking(key: str, header: bytes = b"authorization") -> AsgiClient:
    value = (b"Bearer " if header == b"authorization" else b"") + key.encode()

    async def receive() -> dict[str, object]:
        return {}

    async def send(_: object) -> None: ...

    return AsgiClient({"method": "POST", "path": "/", "headers": [(header, value)]}, receive, send)


def tenancy(*keys: str, expires_at: float | None = None) -> Tenancy:
    entries = {key_hash(k): KeyEntry(k[-4:], k, "p", expires_at=expires_at) for k in keys}
    return Tenancy(1, entries, {"p": Scope("o", "t", "p")}, frozenset({"ada"}))


def test_one_that_is_known_is_the_same_again() -> None:
    who, said = Callers("secret"), tenancy(KEY)
    assert who.of(asking(KEY), said, 0.0) is who.of(asking(KEY), said, 1.0)
    assert who.of(asking(KEY, b"x-api-key"), said, 0.0) == who.of(asking(KEY), said, 0.0)


def test_a_revoked_key_is_unknown_with_the_next_snapshot() -> None:
    who = Callers("secret")
    who.of(asking(KEY), tenancy(KEY), 0.0)
    with pytest.raises(WrongKey):
        who.of(asking(KEY), tenancy(), 0.0)


def test_one_that_expires_is_refused_on_time() -> None:
    who, said = Callers("secret"), tenancy(KEY, expires_at=10.0)
    who.of(asking(KEY), said, 9.9)
    with pytest.raises(WrongKey, match="expired"):
        who.of(asking(KEY), said, 10.0)


def test_a_chat_token_is_read_each_time() -> None:
    who, said = Callers("secret"), tenancy()
    token = sign_chat("secret", ChatToken("ada", "p", 10.0))
    assert who.of(asking(token), said, 9.0).person == "ada"
    with pytest.raises(WrongKey):
        who.of(asking(token), said, 11.0)


def test_there_are_never_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "MOST", 3)
    keys = [KEY[:-1] + str(i) for i in range(8)]
    who, said = Callers("secret"), tenancy(*keys)
    for key in keys:
        assert who.of(asking(key), said, 0.0).key == key[-4:]
        assert len(who._known) <= 3
