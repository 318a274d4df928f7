"""Secrets that several sides derive the same way: a key's hash, an engine's key, the portal's chat token. Pure."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass

import msgspec

CHAT_PREFIX = "llmgw-chat."
CHAT_LIFE_S = 300.0


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


def sign_chat(secret: str, token: ChatToken) -> str:
    body = base64.urlsafe_b64encode(msgspec.json.encode(token)).rstrip(b"=").decode()
    return f"{CHAT_PREFIX}{body}.{_signature(secret, body)}"


def verify_chat(secret: str, text: str, now: float) -> ChatToken | None:
    """The token when it is ours and still lives."""
    body, _, signature = text.removeprefix(CHAT_PREFIX).rpartition(".")
    if not body or not hmac.compare_digest(_signature(secret, body).encode(), signature.encode()):
        return None
    try:
        token = msgspec.json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=ChatToken)
    except (ValueError, msgspec.MsgspecError):
        return None
    return token if token.expires_at > now else None


def _signature(secret: str, body: str) -> str:
    return hmac.new(secret.encode(), f"chat:{body}".encode(), hashlib.sha256).hexdigest()
