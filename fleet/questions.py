"""Asking a node something from any process: through the link that holds its socket. Bounded, and may be lost."""

from __future__ import annotations

import json
import secrets
from typing import Any

import msgspec
import redis

from agent.wire.messages import Answer
from fleet import models, nudges
from llmgw.cluster.errors import Conflict, NotFound


def ask(node_id: str, kind: str, args: dict[str, Any] | None = None, timeout_s: float = 5.0) -> Answer:
    """The node's answer. `kind` and `args` as in `agent.wire.messages.Question`. Raises `NotFound` for an unknown
    node, `Conflict` when it is not connected, does not answer in time, or Redis is away."""
    row = models.Node.objects.filter(node_id=node_id).values("connected").first()
    if row is None:
        raise NotFound("no_such_node", f"there is no node {node_id}", "llmgw node list")
    if not row["connected"]:
        raise Conflict(
            "node_not_connected", f"{node_id} is not connected, so it cannot be asked", f"llmgw node show {node_id}"
        )
    question = secrets.token_hex(8)
    message = {"node": node_id, "id": question, "kind": kind, "args": args or {}, "timeout_s": timeout_s}
    client = nudges.client()
    try:
        if not client.publish(nudges.CHANNEL, json.dumps(message)):
            raise Conflict("link_down", "the agent link does not run, so no node can be asked", "llmgw status")
        found: Any = client.blpop([reply_key(question)], timeout=timeout_s)
    except redis.RedisError as e:
        raise Conflict("redis_down", f"a node is asked by way of Redis, which cannot be reached: {e}") from None
    if found is None:
        raise Conflict("no_answer", f"{node_id} did not answer within {timeout_s:g} s", f"llmgw node show {node_id}")
    return msgspec.json.decode(found[1], type=Answer)


def reply_key(question: str) -> str:
    return f"llmgw:link:answer:{question}"


def encode(answer: Answer) -> bytes:
    return msgspec.json.encode(answer)
