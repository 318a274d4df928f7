"""What an older agent, and one that lies, say instead of the truth. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

from agent.wire.facts import NodeFacts
from agent.wire.messages import PROTOCOL, Heartbeat, Hello, Message, Report
from agent.wire.shard import ShardObserved, ShardState

Words = Callable[[Message], Message]
_FIRST_FACTS = frozenset(
    [
        "hostname",
        "address",
        "os",
        "arch",
        "boot_id",
        "cpu_count",
        "cpu_model",
        "vector_extensions",
        "memory_bytes",
        "memory_free_bytes",
        "disk_bytes",
        "disk_free_bytes",
        "ports_taken",
        "driver",
        "agent_version",
        "labels",
        "gpus",
        "rdma_ports",
        "engines",
    ]
)
"""What the first release's agent told."""


def older(message: Message) -> Message:
    """As the first release's agent would have said it: what came later is absent, which is: not known."""
    match message:
        case Hello():
            return replace(message, agent_version="0.0.9", protocol=1, oldest=1)
        case Report():
            later = {f.name: None for f in fields(NodeFacts) if f.name not in _FIRST_FACTS}
            facts = replace(message.facts, agent_version="0.0.9", **later)
            return replace(message, facts=facts, shards=tuple(map(_older_shard, message.shards)))
        case Heartbeat():
            return replace(message, shards=tuple(map(_older_shard, message.shards)))
    return message


def too_old(message: Message) -> Message:
    """A protocol that the control plane no longer speaks."""
    return replace(message, protocol=PROTOCOL - 1, oldest=0) if isinstance(message, Hello) else message


def lying(about: str, other: str) -> Words:
    """`about`: cards (each told twice, with another's id), shard (of `other` it says that it runs it), memory."""
    return {"cards": _double_cards, "memory": _absurd_memory}.get(about) or _foreign_shard(other)


def _older_shard(shard: ShardObserved) -> ShardObserved:
    return replace(shard, devices_memory=None, took=None)


def _double_cards(message: Message) -> Message:
    if not isinstance(message, Report) or not message.facts.gpus:
        return message
    return replace(message, facts=replace(message.facts, gpus=message.facts.gpus * 2))


def _absurd_memory(message: Message) -> Message:
    huge = 2**62
    match message:
        case Report():
            gpus = message.facts.gpus and tuple(replace(g, memory_free_bytes=huge) for g in message.facts.gpus)
            facts = replace(message.facts, memory_bytes=huge, memory_free_bytes=huge, gpus=gpus, cpu_count=10**6)
            shards = tuple(replace(s, memory_bytes=huge) for s in message.shards)
            return replace(message, facts=facts, shards=shards)
        case Heartbeat():
            shards = tuple(replace(s, memory_bytes=huge) for s in message.shards)
            return replace(message, memory_free_bytes=huge, load_1m=-1.0, shards=shards)
    return message


def _foreign_shard(other: str) -> Words:
    """It says that it runs another node's shard, and that this has failed."""
    lie = ShardObserved(
        shard_id=other,
        state=ShardState.FAILED,
        incarnation=1,
        reason="told by a node that does not run it",
        replica_id=other.rpartition(".")[0],
    )

    def words(message: Message) -> Message:
        if isinstance(message, Report | Heartbeat):
            return replace(message, shards=(*message.shards, lie, replace(lie, state=ShardState.READY, incarnation=99)))
        return message

    return words
