"""`/v1/models` and `/v1/models/{id}`: what the caller's key may use, in OpenAI's shape."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import msgspec

from gateway.core import errors, principal
from gateway.core.snapshot import ModelEntry, Snapshot

PATH = "/v1/models"


def answer(path: str, who: principal.Principal, snapshot: Snapshot, model: ModelEntry | None) -> bytes:
    """The body; raises `UnknownModel` or `NotAllowed`. `model` is the one that the path names, aliases resolved."""
    if path == PATH:
        entries = [_entry(m) for _, m in sorted(snapshot.catalog.models.items()) if _offered(who, m)]
        return msgspec.json.encode({"object": "list", "data": entries})
    name = asked(path)
    if model is None:
        raise errors.UnknownModel(f"there is no model '{name[:120]}' here: see /v1/models", param="model")
    refusal = principal.check_model(who, model.name) or principal.check_leaving(who, model)
    if refusal is not None:
        raise refusal
    return msgspec.json.encode(_entry(model))


def asked(path: str) -> str:
    return unquote(path[len(PATH) + 1 :])


def _offered(who: principal.Principal, model: ModelEntry) -> bool:
    return who.may_use(model.name) and principal.check_leaving(who, model) is None


def _entry(model: ModelEntry) -> dict[str, Any]:
    """OpenAI's four fields, then ours."""
    found: dict[str, Any] = {
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": model.owned_by,
        "aliases": list(model.aliases),
        "state": model.state,
        "endpoints": list(model.kinds),
        "external": model.external is not None,
    }
    if model.reason and model.state != "serving":
        found["reason"] = errors.scrub(model.reason)
    if model.context_length is not None:
        found["context_length"] = model.context_length
    return found
