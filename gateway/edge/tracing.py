"""Traces of requests to an OpenTelemetry collector, where this machine names one; the sending is OpenTelemetry's own
(a thread that batches, retries, and drops rather than waits)."""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING

from gateway.core import trace
from gateway.core.record import Intent, Settlement
from llmgw.machine import Machine

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext

SERVICE = "llmgw-server"
_WAIT_S = 2.0
"""At a stop, for what was not sent yet."""


class Tracing:
    """Made only where there is a collector: the libraries are loaded here and not before."""

    def __init__(self, endpoint: str, ratio: float, edge_id: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        logging.getLogger("opentelemetry").setLevel(logging.ERROR)
        self._ratio = ratio
        self._scope = InstrumentationScope("llmgw.gateway")
        self._resource = Resource.create({"service.name": SERVICE, "service.instance.id": edge_id})
        address = endpoint.rstrip("/")
        address = address if address.endswith("/v1/traces") else f"{address}/v1/traces"
        self._sender = BatchSpanProcessor(OTLPSpanExporter(endpoint=address, timeout=5), schedule_delay_millis=1000)

    def begin(self, path: str, parent: bytes | None, state: bytes | None) -> trace.Trace | None:
        """A trace for this request, unless its caller or the ratio decides against one."""
        caller = trace.parse(parent)
        if caller is None:
            trace_id = secrets.randbits(128) or 1
            if not trace.sampled(trace_id, self._ratio):
                return None
            return trace.Trace(None, trace_id, None, path, _span_id)
        if not caller.sampled:
            return None
        return trace.Trace(caller, caller.trace_id, state, path, _span_id)

    def send(self, found: trace.Trace, intent: Intent, settlement: Settlement, raw: bytes, began: float) -> None:
        for span in found.spans(intent, settlement, raw, began):
            self._sender.on_end(self._readable(span))

    def close(self) -> None:
        self._sender.force_flush(int(_WAIT_S * 1000))
        self._sender.shutdown()  # type: ignore[no-untyped-call]

    def _readable(self, span: trace.Span) -> ReadableSpan:
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


def configured(machine: Machine, edge_id: str) -> Tracing | None:
    if not machine.tracing_endpoint or not machine.tracing_sample_ratio:
        return None
    return Tracing(machine.tracing_endpoint, machine.tracing_sample_ratio, edge_id)


def _span_id() -> int:
    return secrets.randbits(64) or 1


def _context(context: trace.Context, remote: bool = False) -> SpanContext:
    from opentelemetry.trace import SpanContext, TraceFlags

    return SpanContext(context.trace_id, context.span_id, remote, TraceFlags(TraceFlags.SAMPLED))
