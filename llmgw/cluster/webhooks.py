"""Speaking to a webhook: its address and secret from where the settings say, one bounded request, and what came of it.

No address, secret or body is ever in what is said of it.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from django.conf import settings

from llmgw.cluster.core import notices as core
from llmgw.cluster.core.webhooks import Webhook

SILENT_S = 5.0
"""To connect, and between two pieces of an answer."""
WHOLE_S = 15.0
ALL_S = 60.0
"""For everything that is due at one webhook: a worker's claim on it (`notifying.CLAIM_S`) lasts twice as long."""
MOST_BYTES = 2048
"""Of an answer, and of a file with an address or a secret."""


@dataclass(frozen=True, slots=True)
class Answer:
    """`said`: the status, with what Slack and others say of a refusal; or why there was none."""

    good: bool
    said: str
    retry_after_s: float | None = None
    took_ms: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """One webhook, ready to be sent to. `problem`: why it cannot be; empty: it can."""

    id: str
    to: str
    form: core.Form
    events: tuple[str, ...] = ()
    url: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)
    problem: str = ""

    def wants(self, kind: str) -> bool:
        return not self.events or kind in self.events


def targets(webhooks: Sequence[Webhook]) -> list[Target]:
    """Reads the files that they name."""
    return [_target(webhook) for webhook in webhooks]


def send(target: Target, events: Sequence[core.Event]) -> list[Answer]:
    """One answer an event; people get all in one message. After the first that fails, and after a minute, the others
    are not tried, and are not answered."""
    if target.problem:
        return [Answer(False, target.problem)]
    messages: list[tuple[bytes, str, str, int]]
    if target.form == "slack":
        kind = events[0].kind if len({e.kind for e in events}) == 1 else "several"
        messages = [(core.slack_body(events), kind, events[0].id, len(events))]
    else:
        messages = [(core.json_body(e), e.kind, e.id, 1) for e in events]
    answers: list[Answer] = []
    began = time.monotonic()
    try:
        with httpx.Client(verify=_trusted(), timeout=SILENT_S, follow_redirects=False) as client:
            for body, kind, id, count in messages:
                answer = _post(client, target, body, kind, id)
                answers += [answer] * count
                if not answer.good or time.monotonic() - began > ALL_S:
                    break
    except OSError as e:  # LLMGW_CA_FILE
        answers.append(Answer(False, f"the certificates in LLMGW_CA_FILE cannot be read ({e.strerror or e})"))
    return answers


def _target(webhook: Webhook) -> Target:
    url, problem, secret = webhook.url, "", ""
    if webhook.url_file:
        url, problem = _read(webhook.url_file)
        problem = problem or core.url_problem(url)
        problem = f"{webhook.url_file}: {problem}" if problem else ""
    if webhook.secret_file and not problem:
        secret, problem = _read(webhook.secret_file)
        problem = f"{webhook.secret_file}: {problem}" if problem else ""
    to = webhook.name or (core.host_of(url) if url and not problem else "") or webhook.url_file
    form = webhook.format or core.form_of(url)
    return Target(
        core.id_of(webhook.url or webhook.url_file), to[:120], form, tuple(webhook.events), url, secret, problem
    )


def _read(path: str) -> tuple[str, str]:
    """A file's one line, and what is wrong with it."""
    try:
        with Path(path).open("rb") as f:
            data = f.read(MOST_BYTES + 1)
        text = data.decode().strip()
    except OSError as e:
        return "", f"it cannot be read ({e.strerror})"
    except UnicodeDecodeError:
        return "", "it is no text"
    if not text:
        return "", "it is empty"
    if len(data) > MOST_BYTES:
        return "", f"it is longer than {MOST_BYTES} bytes"
    return text, ""


def _post(client: httpx.Client, target: Target, body: bytes, kind: str, id: str) -> Answer:
    headers = {"content-type": "application/json", "user-agent": "llmgw", "x-llmgw-event": kind, "x-llmgw-delivery": id}
    if target.secret:
        headers["x-llmgw-signature"] = core.signature(target.secret, body)
    began = time.monotonic()
    try:
        with client.stream("POST", target.url, content=body, headers=headers) as response:
            said = b""
            for piece in response.iter_bytes():
                said += piece
                if len(said) >= MOST_BYTES or time.monotonic() - began > WHOLE_S:
                    break
        good, text = response.is_success, f"{response.status_code}"
        if not good:
            text = _refusal(response, said, target)
        retry_after = _seconds(response.headers.get("retry-after", ""))
    except httpx.TimeoutException:
        good, text, retry_after = False, f"it did not answer within {SILENT_S:.0f} s", None
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as e:
        why = str(e).replace(target.url, "…") or type(e).__name__
        good, text, retry_after = False, f"it cannot be reached: {why}"[:300], None
    return Answer(good, text, retry_after, round(1000 * (time.monotonic() - began)))


def _refusal(response: httpx.Response, said: bytes, target: Target) -> str:
    text = f"{response.status_code} {response.reason_phrase}".strip()
    if response.is_redirect:
        return f"{text}: it is elsewhere, and nothing is sent on to where an answer points"
    words = " ".join(said[:200].decode(errors="replace").split())
    if words and "<" not in words:  # not a page of a proxy's
        text += f": {words.replace(target.url, '…')}"
    return text[:300]


def _seconds(value: str) -> float | None:
    return float(value) if value.isascii() and value.isdigit() else None


def _trusted() -> ssl.SSLContext:
    """The system's authorities, and those of the file that this machine names."""
    context = ssl.create_default_context()
    if settings.MACHINE.ca_file:
        context.load_verify_locations(settings.MACHINE.ca_file)
    return context
