"""The first question, asked as any client would: through the gateway's port, streamed."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator

from llmgw import keys, secrets
from llmgw.machine import Machine


class NotYet(Exception):
    """The gateway did not answer as hoped; says how."""


def streamed(machine: Machine, model: str, question: str, person: str, project: str) -> Iterator[str]:
    """The answer's pieces as they come; raises `NotYet` where the gateway or the model cannot answer."""
    token = keys.sign_chat(
        secrets.read_or_make(machine.secrets_dir, "chat"),
        keys.ChatToken(person=person, project=project, expires_at=time.time() + keys.CHAT_LIFE_S),
    )
    connection = http.client.HTTPConnection(machine.local_host, machine.port, timeout=120)
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": question}]}
    try:
        connection.request(
            "POST",
            "/v1/chat/completions",
            json.dumps(body),
            {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        response = connection.getresponse()
        if response.status != 200:
            raise NotYet(_message(response.read(), response.status))
        yield from _pieces(response)
    except (OSError, http.client.HTTPException) as e:
        raise NotYet(f"the gateway on port {machine.port} did not answer: {e}") from None
    finally:
        connection.close()


def _pieces(response: http.client.HTTPResponse) -> Iterator[str]:
    for raw in response:
        line = raw.strip()
        if not line.startswith(b"data:") or line == b"data: [DONE]":
            continue
        event = json.loads(line[5:])
        if "error" in event:
            raise NotYet(event["error"].get("message", "the engine failed"))
        for choice in event.get("choices", ()):
            if piece := choice.get("delta", {}).get("content"):
                yield piece


def _message(body: bytes, status: int) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the gateway answered {status}"
