"""Secrets that several sides derive the same way: a key's hash, an engine's key, the portal's chat token. Pure."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass
from typing import TypeVar

import msgspec

T = TypeVar("T")

CHAT_PREFIX = "llmgw-chat."
CHAT_LIFE_S = 300.0
REPLAY_PREFIX = "llmgw-replay."
REPLAY_LIFE_S = 60.0
"""Until the request must have come; its answer may take longer."""


def key_hash(key: str) -> str:
    """What is stored of a key: SHA-256 in hex. Keys are 256 random bits, so no slow hash is needed."""
    return hashlib.sha256(key.encode()).hexdigest()


def engine_key(secret: str, replica: str) -> str:
    """The key that only the router and this replica's engine hold."""
    return hmac.new(secret.encode(), f"replica:{replica}".encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class ChatToken:
    """Whom a chat page speaks for. `expires_at` in Unix seconds."""

    person: str
    project: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class ReplayToken:
    """Leave to send a kept request once more, as the gateway itself. `actor`: who wished it;
    `project`: whose request it is. `expires_at` in Unix seconds."""

    actor: str
    request: str
    project: str
    expires_at: float


def sign_chat(secret: str, token: ChatToken) -> str:
    return _signed(CHAT_PREFIX, "chat", secret, token)


def verify_chat(secret: str, text: str, now: float) -> ChatToken | None:
    """The token when it is ours and still lives."""
    token = _verified(CHAT_PREFIX, "chat", secret, text, ChatToken)
    return token if token is not None and token.expires_at > now else None


def sign_replay(secret: str, token: ReplayToken) -> str:
    """With the secret of chat tokens: what is signed says which of the two it is."""
    return _signed(REPLAY_PREFIX, "replay", secret, token)


def verify_replay(secret: str, text: str, now: float) -> ReplayToken | None:
    token = _verified(REPLAY_PREFIX, "replay", secret, text, ReplayToken)
    return token if token is not None and token.expires_at > now else None


def _signed(prefix: str, kind: str, secret: str, token: ChatToken | ReplayToken) -> str:
    body = base64.urlsafe_b64encode(msgspec.json.encode(token)).rstrip(b"=").decode()
    return f"{prefix}{body}.{_signature(secret, kind, body)}"


def _verified(prefix: str, kind: str, secret: str, text: str, shape: type[T]) -> T | None:
    body, _, signature = text.removeprefix(prefix).rpartition(".")
    if not body or not hmac.compare_digest(_signature(secret, kind, body).encode(), signature.encode()):
        return None
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=shape)
    except (ValueError, msgspec.MsgspecError):
        return None


def _signature(secret: str, kind: str, body: str) -> str:
    return hmac.new(secret.encode(), f"{kind}:{body}".encode(), hashlib.sha256).hexdigest()
