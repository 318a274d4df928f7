"""What a request asks, apart from how it wants to be told: requests that ask the same have the same key. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.core.request import EMBEDDINGS

TELLING = frozenset({"stream", "stream_options", "user", "metadata", "store", "service_tier"})
"""How the answer is to be told, and for whom: nothing that changes it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """`fields`: the body without what tells nothing. `model`: its name in the catalogue."""

    endpoint: str
    project: str
    model: str
    fields: dict[str, Any]
    key: bytes

    @property
    def reproducible(self) -> bool:
        """Nothing is drawn by lot: asked again, the model would say the same."""
        if self.endpoint == EMBEDDINGS:
            return True
        seed = _number(self.fields.get("seed"))  # a negative one asks llama.cpp for a new one each time
        return _number(self.fields.get("temperature")) == 0 or (seed is not None and seed >= 0)


def read(endpoint: str, body: bytes, project: str, model: str) -> Asked | None:
    """None for a body that cannot be compared."""
    try:
        found = msgspec.json.decode(body)
        if not isinstance(found, dict):
            return None
        fields = _plain(found)
        return Asked(endpoint, project, model, fields, digest(endpoint, project, model, fields))
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        return None


def digest(endpoint: str, project: str, model: str, fields: Any, *further: str) -> bytes:
    """SHA-256 of all of it, with the keys of every object in one order."""
    found = hashlib.sha256(msgspec.json.encode([endpoint, project, model, *further]))
    found.update(msgspec.json.encode(fields, order="sorted"))
    return found.digest()


def _plain(found: dict[str, Any]) -> dict[str, Any]:
    """What is null is as if it were not there, in the body and in its messages; 0.0 is 0. A tool's schema stays as it
    is: null means something there."""
    fields = {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in found.items()
        if value is not None and name not in TELLING and name != "model"
    }
    messages = fields.get("messages")
    if isinstance(messages, list):
        fields["messages"] = [
            {k: v for k, v in m.items() if v is not None} if isinstance(m, dict) else m for m in messages
        ]
    return fields


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
