"""Places in a trace, as W3C writes them, and spans as they are sent. Pure.

https://www.w3.org/TR/trace-context/
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

SERVER, CLIENT, INTERNAL = "server", "client", "internal"
Attributes = dict[str, str | int | float | bool]
_CONTEXT = re.compile(rb"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")


@dataclass(frozen=True, slots=True)
class Context:
    """A place in a trace. `sampled`: whoever made it records it."""

    trace_id: int
    span_id: int
    sampled: bool

    def header(self) -> bytes:
        return b"00-%032x-%016x-%02x" % (self.trace_id, self.span_id, self.sampled)


@dataclass(frozen=True, slots=True)
class Span:
    """A step as it is sent. Times in Unix nanoseconds."""

    name: str
    context: Context
    parent: Context | None
    kind: str
    start_ns: int
    end_ns: int
    attributes: Attributes
    error: str
    """A code, never a sentence: sentences may quote."""


def parse(header: bytes | None) -> Context | None:
    """The caller's `traceparent`; None for none and for anything else, as the specification wants."""
    found = _CONTEXT.fullmatch(header.strip()) if header else None
    if found is None:
        return None
    trace_id, span_id = int(found[1], 16), int(found[2], 16)
    if not trace_id or not span_id:
        return None
    if header is not None and header.strip()[:2] == b"00" and len(header.strip()) != 55:
        return None
    return Context(trace_id, span_id, bool(int(found[3], 16) & 1))


def sampled(trace_id: int, ratio: float) -> bool:
    """As OpenTelemetry's TraceIdRatioBased decides: by the lower eight bytes, so that all who use it agree."""
    return (trace_id & (2**64 - 1)) < round(ratio * 2**64)


def of_replica(event: str, replica_id: str, incarnation: int) -> Context:
    """Where a replica's `start` or `stop` hangs: the control plane's span, under which every node puts its own. Made
    from the replica's id: neither a message nor a row has to carry it, and it outlives both sides' processes."""
    made = hashlib.sha256(f"llmgw {event} {replica_id} {incarnation}".encode()).digest()
    return Context(int.from_bytes(made[:16], "big") or 1, int.from_bytes(made[16:24], "big") or 1, True)
