"""The settings of those who are told of what goes wrong, and what is wrong with them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

from llmgw.cluster.core import notices
from llmgw.cluster.core.sections import BadSettings


@dataclass(frozen=True, slots=True)
class Webhook:
    """Who is told of what goes wrong (docs/notices.md): at `url`, or at what `url_file` holds, for Slack's addresses
    are secrets. `format` empty: as the address looks. `events`: kinds; empty: all. `secret_file` signs the body. `name`
    is what people see; empty: the host's."""

    url: str = ""
    url_file: str = ""
    format: Literal["", "json", "slack"] = ""
    events: list[str] = field(default_factory=list)
    secret_file: str = ""
    name: Annotated[str, msgspec.Meta(max_length=60)] = ""


@dataclass(frozen=True, slots=True)
class NotifySettings:
    webhooks: list[Webhook] = field(default_factory=list, metadata={"each": Webhook})


def check(webhooks: Sequence[Webhook]) -> None:
    """Raises `BadSettings`."""
    seen: set[tuple[str, str]] = set()
    for i, webhook in enumerate(webhooks):
        where = f"notify.webhooks[{i}]"
        if bool(webhook.url) == bool(webhook.url_file):
            raise BadSettings(f"{where} needs either url or url_file")
        if webhook.url and (bad := notices.url_problem(webhook.url)):
            raise BadSettings(f"{where}.url: {bad}")
        for name in ("url_file", "secret_file"):
            file = getattr(webhook, name)
            if file and not file.startswith("/"):
                raise BadSettings(f"{where}.{name} is the whole path of a file, and {file!r} does not begin with /")
        if unknown := [kind for kind in webhook.events if kind not in notices.KINDS]:
            raise BadSettings(f"{where}.events: there is no {', '.join(unknown)}, only {', '.join(notices.KINDS)}")
        if (webhook.url, webhook.url_file) in seen:
            raise BadSettings(f"{where} is there twice: put its events into one")
        seen.add((webhook.url, webhook.url_file))
