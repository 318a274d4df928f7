"""Traces of what a node does for a replica, and of what it installs, where agent.yaml names a collector."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Mapping

from agent.core.work_trace import WorkTrace
from agent.node.clock import Clock
from agent.node.settings import Settings
from agent.spans import Sender, new_id
from agent.wire import trace
from agent.wire.shard import ShardSpec

_log = logging.getLogger("llmgw.agent")
SERVICE = "llmgw-agent"
_CLOSE_S = 1.5


class Tracing:
    """Which traces are kept is told by their ids: the control plane, which has the same ratio, keeps the same ones."""

    def __init__(self, sender: Sender, ratio: float, node_id: str, clock: Clock) -> None:
        self._sender, self._ratio, self._node_id, self._clock = sender, ratio, node_id, clock

    def start(self, spec: ShardSpec) -> WorkTrace | None:
        return self._of_shard("start", spec)

    def stop(self, spec: ShardSpec) -> WorkTrace | None:
        return self._of_shard("stop", spec)

    def install(self, engine: str, version: str) -> WorkTrace | None:
        """A trace of its own."""
        trace_id = secrets.randbits(128) or 1
        if not trace.sampled(trace_id, self._ratio):
            return None
        said: trace.Attributes = {"llmgw.node": self._node_id, "llmgw.engine": engine, "llmgw.version": version}
        return WorkTrace("install engine", None, trace_id, self._clock.wall(), new_id, said)

    def send(self, work: WorkTrace, error: str = "", **attributes: str | int | float | bool) -> None:
        """The work is over."""
        self._sender.send(work.spans(self._clock.wall(), error, **attributes))

    def close(self) -> None:
        """For what was not sent yet; no longer than a moment, also where the collector is away."""
        closing = threading.Thread(target=self._sender.close, daemon=True)
        closing.start()
        closing.join(_CLOSE_S)

    def _of_shard(self, event: str, spec: ShardSpec) -> WorkTrace | None:
        parent = trace.of_replica(event, spec.replica_id, spec.incarnation)
        if not trace.sampled(parent.trace_id, self._ratio):
            return None
        said: trace.Attributes = {
            "llmgw.node": self._node_id,
            "llmgw.replica": spec.replica_id,
            "llmgw.model": spec.model,
            "llmgw.engine": spec.profile.engine,
            "llmgw.rank": spec.rank,
            "llmgw.incarnation": spec.incarnation,
        }
        return WorkTrace(f"{event} shard", parent, parent.trace_id, self._clock.wall(), new_id, said)


class ShardTrace:
    """What is traced of one shard: its start, and then its stop. `tracing` None: nothing is."""

    def __init__(self, tracing: Tracing | None, clock: Clock) -> None:
        self._tracing, self._clock = tracing, clock
        self._work: WorkTrace | None = None

    def starts(self, spec: ShardSpec) -> None:
        self._work = self._tracing.start(spec) if self._tracing is not None else None

    def stops(self, spec: ShardSpec) -> None:
        """Its start is over, if it was not."""
        self.over("stopped")
        self._work = self._tracing.stop(spec) if self._tracing is not None else None

    def step(self, name: str) -> None:
        if self._work is not None:
            self._work.step(name, self._clock.wall())

    def over(self, error: str = "", **attributes: str | int | float | bool) -> None:
        """Unless it was already."""
        if self._work is not None and self._tracing is not None:
            self._tracing.send(self._work, error, **attributes)
            self._work = None


def configured(settings: Settings, environ: Mapping[str, str], clock: Clock) -> Tracing | None:
    """None where no collector is named, or the libraries for it are not installed here."""
    endpoint = settings.tracing.endpoint or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    if not endpoint or not settings.tracing.sample_ratio:
        return None
    try:
        sender = Sender(endpoint, SERVICE, settings.node_id, "llmgw.agent")
    except ImportError:
        _log.warning("a collector is named (%s), and nothing is traced: pip install 'llmgw[tracing]'", endpoint)
        return None
    return Tracing(sender, settings.tracing.sample_ratio, settings.node_id, clock)
