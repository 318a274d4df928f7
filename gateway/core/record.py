"""The two lines that every request leaves in an edge's spool: an intent before dispatch, a settlement after.

The spool is append-only JSON lines, shipped by one process with inserts that are idempotent by request id. An
intent whose edge died before settling becomes a row marked estimated. They are structs: a frozen dataclass of so many
fields takes ten times as long to make.
"""

from __future__ import annotations

import msgspec


class Intent(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    at: float
    """Unix seconds."""
    endpoint: str
    """chat | completions | embeddings."""
    model: str
    """The name after aliases."""
    asked: str
    """The name as the client gave it."""
    stream: bool
    organisation: str = ""
    team: str = ""
    project: str = ""
    key: str = ""
    person: str = ""
    edge: str = ""
    session: str = ""
    """`x-session-id`, as the client gave it."""
    end_user: str = ""
    """OpenAI's `user`: the client's own name for whom it serves."""
    tags: dict[str, str] = msgspec.field(default_factory=dict)
    """From `metadata` and `x-llmgw-tags`."""


class Settlement(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    outcome: str
    """ok | client_left | engine_failed | refused | timed_out."""
    status: int
    """What the client was answered; 499 where it left before an answer began."""
    duration_ms: float
    ttft_ms: float | None = None
    replica: str = ""
    node: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    estimated: bool = False
    """The engine could not say; the counts are ours."""
    attempts: int = 1
    code: str = ""
    """The error's code, as the client saw it."""
    route: str = ""
    """Why this replica: a Reason's sentence."""
    served: str = ""
    """The model that answered, where it is not the one that was asked for."""
    hops: tuple[str, ...] = ()
    """What was tried before, in order: `model@replica: why it was left`."""
    cost: int | None = None
    """Nano-units; None: nobody priced it."""
    cache: str = ""
    """hit | similar | miss | bypass; empty where answers are not given again."""
    saved_tokens: int | None = None
    """What an answer that was given again had counted; else the prompt tokens that the engine had read before."""
    saved: int | None = None
    """What these would have cost more, in nano-units; None: nobody priced it."""
    queued_ms: float | None = None
    """How long it waited to be let in."""
    dispatched_ms: float | None = None
    """When the last attempt was sent."""
    reason: str = ""
    """The refusal's sentence, where the gateway itself refused."""


class _Line(msgspec.Struct, omit_defaults=True):
    i: Intent | None = None
    s: Settlement | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Line)


def encode(record: Intent | Settlement) -> bytes:
    """One line, with its newline."""
    return (b'{"i":%b}\n' if type(record) is Intent else b'{"s":%b}\n') % _encoder.encode(record)


def decode(line: bytes) -> Intent | Settlement | None:
    """The record in `line`; None for a line that was cut short by a crash."""
    try:
        found = _decoder.decode(line)
    except msgspec.MsgspecError:
        return None
    return found.i if found.i is not None else found.s
