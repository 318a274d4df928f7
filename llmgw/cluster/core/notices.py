"""Notices: what a person is told of without having asked, and how it is written for a webhook. Pure.

A notice is about something that is so (a node is lost, a model is parked) until it is over. Whoever looks tells what is
so now as a `Standing`; what has begun and what is over since follows from it, so that nothing depends on one look.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

Form = Literal["json", "slack"]
FORMS: tuple[Form, ...] = ("json", "slack")

MODEL_PARKED, MODEL_SERVED = "model_parked", "model_served"
NODE_LOST, NODE_BACK = "node_lost", "node_back"
BUDGET_SPENT = "budget_spent"
KEY_REFUSED, KEY_ACCEPTED = "external_key_refused", "external_key_accepted"
TEST = "test"

OVER: Mapping[str, str] = {MODEL_PARKED: MODEL_SERVED, NODE_LOST: NODE_BACK, KEY_REFUSED: KEY_ACCEPTED}
"""The kind that tells the end of another. A budget's ends with its period, of which nobody need be told."""
KINDS = (MODEL_PARKED, MODEL_SERVED, NODE_LOST, NODE_BACK, BUDGET_SPENT, KEY_REFUSED, KEY_ACCEPTED)
"""Those that a webhook may choose from."""

ONCE_IN_S = 3600.0
"""The same of the same is told at most once in this time."""
PAUSES_S = (10.0, 60.0)
"""Between the three tries to reach a webhook."""
TRIES = len(PAUSES_S) + 1
LINES = 20
"""Of what is due at once, in one message to people."""
LONGEST = 600
"""Characters of one line to people."""


@dataclass(frozen=True, slots=True)
class Said:
    """One sentence, the command that would change it, and the same for programs."""

    sentence: str
    command: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Standing:
    """How things stand with one kind, by subject. `so`: what is to be told. `well`: where its end may be told, and in
    which words. `undecided`: neither; what began there goes on. What is nowhere exists no more."""

    so: Mapping[str, Said] = field(default_factory=dict)
    well: Mapping[str, Said] = field(default_factory=dict)
    undecided: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """As it is sent. `at` in ISO 8601."""

    id: str
    kind: str
    at: str
    subject: str
    message: str
    detail: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""


def due_at(now: float, told_at: float | None) -> float:
    """When one that begins `now` may be told, after another of the same that was told at `told_at`."""
    return now if told_at is None else max(now, told_at + ONCE_IN_S)


def next_try_at(now: float, tries: int, retry_after_s: float | None = None) -> float | None:
    """After `tries` that failed; None: it is given up. A webhook may ask for more time, up to ten minutes."""
    if tries >= TRIES:
        return None
    return now + max(PAUSES_S[tries - 1], min(retry_after_s or 0.0, 600.0))


def json_body(event: Event) -> bytes:
    return msgspec.json.encode(event)


def slack_body(events: Sequence[Event]) -> bytes:
    """One message, a line each: Slack's, and what Mattermost and Rocket.Chat take for it."""
    lines = [_line(event) for event in events[:LINES]]
    if len(events) > LINES:
        lines.append(f"… and {len(events) - LINES} more: llmgw notify list")
    return msgspec.json.encode({"text": "\n".join(lines)})


def _line(event: Event) -> str:
    text = f"{event.kind}: {event.message}"
    text = " ".join(text.split())
    text = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    command = f" (`{event.command}`)" if event.command else ""
    return escaped(text + command)


def escaped(text: str) -> str:
    """What an engine said must not become a link, or call everybody: Slack reads these three signs as its own."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def signature(secret: str, body: bytes) -> str:
    """The value of `X-Llmgw-Signature`: HMAC-SHA256 of the body."""
    return f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


def form_of(url: str) -> Form:
    """Slack's for an address of Slack's, or one as Mattermost and Rocket.Chat have them; else JSON."""
    parts = urlsplit(url)
    host, path = parts.hostname or "", parts.path
    theirs = host == "hooks.slack.com" or host.endswith(".slack.com") or "/hooks/" in path or path.endswith("/slack")
    return "slack" if theirs else "json"


def host_of(url: str) -> str:
    """What of an address may be shown: the rest of Slack's is a secret."""
    parts = urlsplit(url)
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        port = ""
    return f"{parts.hostname or ''}{port}"


def id_of(address: str) -> str:
    """Of a webhook, from its address or the file that holds it: it may be shown, and stays while the address does."""
    return hashlib.sha256(address.encode()).hexdigest()[:12]


def url_problem(url: str) -> str:
    """Empty: it can be sent to."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    return (
        ""
        if good and url == "".join(url.split())
        else "a webhook's address begins with https:// or http:// and names a host"
    )


def typed(text: str) -> tuple[Form, str]:
    """What somebody typed after `--webhook`: an address, with `slack:` or `json:` in front where it does not show."""
    for form in FORMS:
        if text.startswith(f"{form}:"):
            return form, text.removeprefix(f"{form}:")
    return form_of(text), text
