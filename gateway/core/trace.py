"""What a request's trace says: W3C trace context in, spans after OpenTelemetry's GenAI conventions out. Pure.

Steps are noted with the clock's seconds while the request runs, and spans are made of them once it has ended, so that
a request that is not traced costs one comparison. What was asked and what was answered are never in a span.
https://www.w3.org/TR/trace-context/ and https://opentelemetry.io/docs/specs/semconv/gen-ai/
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from agent.wire.trace import CLIENT, INTERNAL, SERVER, Attributes, Context, Span, parse, sampled
from gateway.core.record import Intent, Settlement

__all__ = ["CLIENT", "INTERNAL", "SERVER", "Attributes", "Context", "Span", "Trace", "lines", "parse", "sampled"]
OPERATIONS = {"chat": "chat", "completions": "text_completion", "embeddings": "embeddings"}
_STATE = re.compile(rb"[ -~]{1,512}")


def lines(parent: bytes | None, state: bytes | None) -> bytes:
    """The caller's context for the engine as it came, where nothing is traced here."""
    if parse(parent) is None:
        return b""
    assert parent is not None
    return b"traceparent: %b\r\n%b" % (parent.strip(), _state_line(state))


def _state_line(state: bytes | None) -> bytes:
    state = state.strip() if state else b""
    return b"tracestate: %b\r\n" % state if _STATE.fullmatch(state) else b""


@dataclass(slots=True)
class Step:
    """`began`, `ended` on the exchange's clock, in seconds."""

    name: str
    began: float
    context: Context
    kind: str = INTERNAL
    ended: float = 0.0
    attributes: Attributes = field(default_factory=dict)
    error: str = ""
    """A code, never a sentence: sentences may quote."""


class Trace:
    """One request's. `new_id` gives random span ids."""

    __slots__ = ("_new_id", "_open", "caller", "context", "path", "state", "steps")

    def __init__(
        self, caller: Context | None, trace_id: int, state: bytes | None, path: str, new_id: Callable[[], int]
    ) -> None:
        self.caller, self.state, self.path, self._new_id = caller, state, path, new_id
        self.context = Context(trace_id, new_id(), True)
        self.steps: list[Step] = []
        self._open: Step | None = None

    def begin(self, name: str, now: float, kind: str = INTERNAL, **attributes: str | int | float | bool) -> Step:
        """A step that begins where the one before ended, if nobody ended that."""
        self.end(now)
        context = Context(self.context.trace_id, self._new_id(), True)
        self._open = Step(name, now, context, kind, attributes=attributes)
        self.steps.append(self._open)
        return self._open

    def end(self, now: float, error: str = "", **attributes: str | int | float | bool) -> None:
        if self._open is not None:
            self._open.ended, self._open.error = now, error
            self._open.attributes.update(attributes)
            self._open = None

    def attempt(self, now: float, **attributes: str | int | float | bool) -> bytes:
        """An attempt begins: the header lines that lead the engine's own spans here."""
        step = self.begin("upstream", now, CLIENT, **attributes)
        return b"traceparent: %b\r\n%b" % (step.context.header(), _state_line(self.state))

    def spans(self, intent: Intent, settlement: Settlement, raw: bytes, began: float) -> list[Span]:
        """All of them, the request's own first. `began` is the request's, on the clock of the steps."""

        def ns(t: float) -> int:
            return int((intent.at + (t - began)) * 1e9)

        whole = began + settlement.duration_ms / 1000
        failed = settlement.code if settlement.outcome not in ("ok", "client_left") else ""
        own = Span(
            f"inference {self.path}", self.context, self.caller, SERVER, ns(began), ns(whole),
            _request(intent, settlement, raw), failed,
        )  # fmt: skip
        said = _asked(intent, raw)
        steps = [
            Span(
                s.name, s.context, self.context, s.kind, ns(s.began), ns(s.ended or whole),
                {**said, **s.attributes} if s.name == "upstream" else s.attributes, s.error,
            )
            for s in self.steps
        ]  # fmt: skip
        last = next((s for s in reversed(steps) if s.name == "upstream"), None)
        if last is not None and settlement.replica:
            last.attributes.update(_counts(settlement))
        return [own, *steps]


class _Parameters(msgspec.Struct):
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None


_parameters = msgspec.json.Decoder(_Parameters)


def _asked(intent: Intent, raw: bytes) -> Attributes:
    found: Attributes = {"gen_ai.operation.name": OPERATIONS.get(intent.endpoint, intent.endpoint)}
    if intent.model:
        found["gen_ai.request.model"] = intent.model
    if intent.session:
        found["gen_ai.conversation.id"] = intent.session
    try:
        given = _parameters.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return found
    most = given.max_completion_tokens if given.max_completion_tokens is not None else given.max_tokens
    named = (("max_tokens", most), ("temperature", given.temperature), ("top_p", given.top_p))
    found.update({f"gen_ai.request.{name}": value for name, value in named if value is not None})
    return found


def _counts(settlement: Settlement) -> Attributes:
    named = (
        ("input_tokens", settlement.prompt_tokens),
        ("output_tokens", settlement.completion_tokens),
        ("cache_read.input_tokens", settlement.cached_tokens),
    )
    return {f"gen_ai.usage.{name}": count for name, count in named if count is not None}


def _request(intent: Intent, settlement: Settlement, raw: bytes) -> Attributes:
    found = {
        **_asked(intent, raw),
        **_counts(settlement),
        "http.response.status_code": settlement.status,
        "llmgw.request_id": intent.id,
        "llmgw.outcome": settlement.outcome,
        "llmgw.stream": intent.stream,
    }
    served = settlement.served or (intent.model if settlement.replica else "")
    named = {
        "gen_ai.response.model": served,
        "llmgw.project": intent.project,
        "llmgw.key": intent.key,
        "llmgw.replica": settlement.replica,
        "llmgw.node": settlement.node,
        "llmgw.cache": settlement.cache,
        "error.type": settlement.code if settlement.outcome != "ok" else "",
    }
    found.update({name: value for name, value in named.items() if value})
    if settlement.ttft_ms is not None:
        found["llmgw.ttft_ms"] = settlement.ttft_ms
    return found
