"""The messages between a node and the control plane.

The node dials; after TLS it says `Hello`, is answered by `Welcome` or `Refused`, sends one full `Report` and
then `Heartbeat`s; `Desired` comes whenever its generation moved, `Settings` whenever they changed. Beside that
there is one bounded, idempotent `Question` and its `Answer`. A lost message costs one tick.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agent.wire.facts import GpuFigures, NodeFacts
from agent.wire.shard import ShardObserved, ShardSpec

PROTOCOL = 1
"""The integer version this code speaks."""
OLDEST = 1
"""The oldest version this code still understands."""


@dataclass(frozen=True, slots=True)
class Hello:
    """First from a node. `node_id` must equal the common name of the certificate it presented."""

    node_id: str
    protocol: int = PROTOCOL
    oldest: int = OLDEST
    agent_version: str | None = None
    boot_id: str | None = None
    instance: str | None = None
    """Random per agent process: tells a reconnecting agent from a second one with the same id."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """The control plane took the node in; `heartbeat_s` and `settings` as in `Settings`."""

    store_id: str
    protocol: int = PROTOCOL
    heartbeat_s: float = 2.0
    server_time: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settings:
    """The cluster's settings for this agent have changed since `Welcome`. Whole: what is absent has its default."""

    heartbeat_s: float = 2.0
    settings: dict[str, Any] = field(default_factory=dict)
    """See `agent.core.options`."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Said before the socket is closed. `retry_s` is None where trying again cannot help."""

    code: str
    sentence: str
    retry_s: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Everything the node knows, sent once per connection and whenever facts change."""

    facts: NodeFacts
    shards: tuple[ShardObserved, ...] = ()
    generation: int | None = None
    store_id: str | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Every `heartbeat_s`, and at once when a shard's state changes."""

    shards: tuple[ShardObserved, ...] = ()
    generation: int | None = None
    """The newest `Desired` that the node has taken up."""
    memory_free_bytes: int | None = None
    disk_free_bytes: int | None = None
    load_1m: float | None = None
    gpus: tuple[GpuFigures, ...] | None = None
    """What moves of its cards; absent: unknown, or as before."""


@dataclass(frozen=True, slots=True)
class Desired:
    """The node's whole wanted state. A lower (term, generation) than the last one taken is ignored; a store stops
    only what it owns: what it started, and what runs just as it is named here."""

    store_id: str
    term: int
    generation: int
    shards: tuple[ShardSpec, ...] = ()
    synced: bool = True
    """False while the control plane has not heard from its fleet: start what is wanted, stop nothing."""
    taken_over: tuple[str, ...] = ()
    """Shards, by id, that this store may end although another started them: it adopted them, or an administrator
    gave them up."""
    unwanted: tuple[str, ...] = ()
    """Sources whose fetched weights nobody wants any more: deleted here once nothing runs that is not named above."""


@dataclass(frozen=True, slots=True)
class Question:
    """`kind`: "log" {shard_id | "agent", lines}, "doctor", "weights", "model" {source}, "engine_check" {engine}.
    Bounded, idempotent, may be lost."""

    id: str
    kind: str
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    id: str
    ok: bool
    body: dict[str, Any] = field(default_factory=dict)
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Certify:
    """From a node whose certificate ends before long: a request for the next one, in PEM, under the same name. Sent
    again until it is answered."""

    csr: str


@dataclass(frozen=True, slots=True)
class Certified:
    """The answer to `Certify`. The certificate that the node came with stays good until its end."""

    certificate: str | None = None
    """In PEM."""
    problem: str | None = None


Message = Hello | Welcome | Settings | Refused | Report | Heartbeat | Desired | Question | Answer | Certify | Certified
TYPES: dict[str, type[Message]] = {
    "hello": Hello,
    "welcome": Welcome,
    "settings": Settings,
    "refused": Refused,
    "report": Report,
    "heartbeat": Heartbeat,
    "desired": Desired,
    "question": Question,
    "answer": Answer,
    "certify": Certify,
    "certified": Certified,
}
NAMES: dict[type[Message], str] = {cls: name for name, cls in TYPES.items()}
