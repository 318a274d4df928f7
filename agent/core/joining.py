"""How a node joins by a code: what the code holds, and the marks that both ends prove it with. Pure.

The code is base64url (unpadded) of JSON `{"u": portal, "s": secret, "n": node id or ""}`. The portal may be plain
HTTP: the secret itself never travels, and neither end believes an answer without its mark.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import msgspec


class BadCode(ValueError):
    """The text is no join code."""


@dataclass(frozen=True, slots=True)
class JoinCode:
    portal: str
    secret: str = field(repr=False)
    node_id: str = ""

    @property
    def id(self) -> str:
        """Names the code without giving it away."""
        return hashlib.sha256(self.secret.encode()).hexdigest()[:16]


def read(text: str) -> JoinCode:
    """Raises `BadCode`."""
    text = "".join(text.split())
    try:
        found: Any = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        code = JoinCode(found["u"].rstrip("/"), found["s"], found.get("n", ""))
        usable = (
            urlsplit(code.portal).scheme in ("http", "https") and bool(code.secret) and isinstance(code.node_id, str)
        )
    except (ValueError, KeyError, TypeError, AttributeError, msgspec.MsgspecError):
        usable = False
    if not usable:
        raise BadCode("that is no join code; make one with `llmgw node join-code` and copy all of it")
    return code


def request_mark(secret: str, node_id: str, csr: str) -> str:
    return _mark(secret, f"join:{node_id}:{csr}")


def answer_mark(secret: str, certificate: str, authority: str, server: str) -> str:
    return _mark(secret, f"joined:{certificate}:{authority}:{server}")


def same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def _mark(secret: str, text: str) -> str:
    key = hashlib.sha256(f"llmgw join{secret}".encode()).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
