"""Join codes: what one holds, and the marks by which both ends prove that they know its secret. Pure.

A code is base64url (unpadded) of JSON `{"u": portal, "s": secret, "n": node id or ""}`. The secret never travels:
the store keeps the key that both sides' marks are made with.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json


def code(portal: str, secret: str, node_id: str) -> str:
    """What a person copies to the node."""
    text = json.dumps({"u": portal, "s": secret, "n": node_id}, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def code_id(secret: str) -> str:
    """Names a code without giving it away."""
    return hashlib.sha256(secret.encode()).hexdigest()[:16]


def proof_key(secret: str) -> bytes:
    return hashlib.sha256(f"llmgw join{secret}".encode()).digest()


def request_mark(key: bytes, node_id: str, csr: str) -> str:
    return _mark(key, f"join:{node_id}:{csr}")


def answer_mark(key: bytes, certificate: str, authority: str, server: str) -> str:
    return _mark(key, f"joined:{certificate}:{authority}:{server}")


def same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def _mark(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
