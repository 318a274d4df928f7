"""Profiling counters of a dcgm-exporter on this node, for cards whose own NVML does not tell them."""

from __future__ import annotations

import http.client
import time
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, replace

from agent.core import dcgm
from agent.wire.facts import GpuFacts, GpuFigures

DEFAULT = "http://127.0.0.1:9400/metrics"
_ASK_S = 1.0
_WHOLE_S = 2.0
_MOST_BYTES = 4 * 2**20
_AGAIN_S = 30.0
"""After it did not answer: most nodes have none."""


class Exporter:
    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._url, self._clock = url, clock
        self._not_before = 0.0

    def filled(self, figures: tuple[GpuFigures, ...], gpus: tuple[GpuFacts, ...] | None) -> tuple[GpuFigures, ...]:
        """`figures` with the counters of the cards that lack theirs. An instance of a cut card has none."""
        now = self._clock()
        if now < self._not_before:
            return figures
        text = _got(self._url, self._clock)
        if text is None:
            self._not_before = now + _AGAIN_S
            return figures
        profiles = dcgm.read(text)
        ids = {g.index: g.uuid for g in gpus or () if not g.mig_enabled}
        return tuple(_joined(f, profiles.get(ids.get(f.index) or "")) for f in figures)


def _joined(figures: GpuFigures, profile: dcgm.Profile | None) -> GpuFigures:
    if profile is None or figures.sm_active_percent is not None:
        return figures
    return replace(figures, **asdict(profile))


def _got(url: str, clock: Callable[[], float]) -> str | None:
    """None where it does not answer whole and in time: an exporter that drips holds up the driver's thread."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    until = clock() + _WHOLE_S
    body = b""
    try:
        with opener.open(url, timeout=_ASK_S) as answer:
            while chunk := answer.read1(65536):
                body += chunk
                if clock() > until or len(body) > _MOST_BYTES:
                    return None
    except (OSError, ValueError, http.client.HTTPException):
        return None
    return body.decode(errors="replace")
