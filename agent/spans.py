"""Sending spans to an OpenTelemetry collector, where one is named; the sending is OpenTelemetry's own (a thread that
batches, retries, and drops rather than waits). Used by agents and by the control plane."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable
from typing import TYPE_CHECKING

from agent.wire import trace
from agent.wire.trace import Context, Span

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext

_WAIT_S = 2.0
"""At a stop, for what was not sent yet."""


class Sender:
    """Made only where there is a collector: the libraries are loaded here and not before. Raises ImportError where
    they are not installed (`llmgw[tracing]`)."""

    def __init__(self, endpoint: str, service: str, instance: str, scope: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        logging.getLogger("opentelemetry").setLevel(logging.ERROR)
        self._scope = InstrumentationScope(scope)
        self._resource = Resource.create({"service.name": service, "service.instance.id": instance})
        address = endpoint.rstrip("/")
        address = address if address.endswith("/v1/traces") else f"{address}/v1/traces"
        self._sender = BatchSpanProcessor(OTLPSpanExporter(endpoint=address, timeout=5), schedule_delay_millis=1000)

    def send(self, spans: Iterable[Span]) -> None:
        for span in spans:
            self._sender.on_end(self._readable(span))

    def close(self) -> None:
        self._sender.force_flush(int(_WAIT_S * 1000))
        self._sender.shutdown()  # type: ignore[no-untyped-call]

    def _readable(self, span: Span) -> ReadableSpan:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.status import Status, StatusCode

        kinds = {trace.SERVER: SpanKind.SERVER, trace.CLIENT: SpanKind.CLIENT, trace.INTERNAL: SpanKind.INTERNAL}
        return ReadableSpan(
            span.name,
            context=_context(span.context),
            parent=_context(span.parent, remote=span.kind == trace.SERVER) if span.parent is not None else None,
            resource=self._resource,
            attributes=span.attributes,
            kind=kinds[span.kind],
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=self._scope,
        )


def new_id() -> int:
    """A random span id."""
    return secrets.randbits(64) or 1


def _context(context: Context, remote: bool = False) -> SpanContext:
    from opentelemetry.trace import SpanContext, TraceFlags

    return SpanContext(context.trace_id, context.span_id, remote, TraceFlags(TraceFlags.SAMPLED))
