"""Traces of requests to an OpenTelemetry collector, where this machine names one."""

from __future__ import annotations

import secrets

from agent.spans import Sender, new_id
from gateway.core import trace
from gateway.core.record import Intent, Settlement
from llmgw.machine import Machine

SERVICE = "llmgw-server"


class Tracing:
    """Made only where there is a collector: the libraries are loaded here and not before."""

    def __init__(self, endpoint: str, ratio: float, edge_id: str) -> None:
        self._ratio = ratio
        self._sender = Sender(endpoint, SERVICE, edge_id, "llmgw.gateway")

    def begin(self, path: str, parent: bytes | None, state: bytes | None) -> trace.Trace | None:
        """A trace for this request, unless its caller or the ratio decides against one."""
        caller = trace.parse(parent)
        if caller is None:
            trace_id = secrets.randbits(128) or 1
            if not trace.sampled(trace_id, self._ratio):
                return None
            return trace.Trace(None, trace_id, None, path, new_id)
        if not caller.sampled:
            return None
        return trace.Trace(caller, caller.trace_id, state, path, new_id)

    def send(self, found: trace.Trace, intent: Intent, settlement: Settlement, raw: bytes, began: float) -> None:
        self._sender.send(found.spans(intent, settlement, raw, began))

    def close(self) -> None:
        self._sender.close()


def configured(machine: Machine, edge_id: str) -> Tracing | None:
    if not machine.tracing_endpoint or not machine.tracing_sample_ratio:
        return None
    return Tracing(machine.tracing_endpoint, machine.tracing_sample_ratio, edge_id)
