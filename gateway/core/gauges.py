"""An engine's load from the text of its metrics: what it says, and nothing made up for what it does not. Pure.

Only lines of the wanted names are looked at. Several API processes publish the same gauge, each under its `pid` and
most of them 0: the largest counts. Several engines behind one port are summed; of KV caches the fullest counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isfinite

from agent.engine import MetricNames
from gateway.core.load import Gauges

FORMERLY = {"vllm:kv_cache_usage_perc": "vllm:gpu_cache_usage_perc"}
"""What a gauge was called in versions that are still run; the new name wins where both are there."""
_SERIES = re.compile(rb'(?:\{((?:\s*[a-zA-Z_]\w*="(?:[^"\\]|\\.)*"\s*,?)*)\s*\})?[ \t]+(\S+)')
"""What follows a name: labels, value."""
_LABELS = re.compile(rb'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')


def read(text: bytes, names: MetricNames) -> Gauges:
    running, waiting = _sum(text, names.running), _sum(text, names.waiting)
    usage = [value for _, value in _series(text, names.kv_cache_usage)]
    return Gauges(running, waiting, min(1.0, max(usage)) if usage else None)


def _sum(text: bytes, name: str | None) -> int | None:
    found: dict[bytes, float] = {}
    for engine, value in _series(text, name):
        found[engine] = max(value, found.get(engine, 0.0))
    return round(sum(found.values())) if found else None


def _series(text: bytes, name: str | None) -> list[tuple[bytes, float]]:
    """The labels but for `pid`, and the value, of each line; a value that is no count is unknown."""
    while name is not None:
        found = list(_lines(text, name.encode()))
        if found:
            return found
        name = FORMERLY.get(name)
    return []


def _lines(text: bytes, name: bytes) -> Iterator[tuple[bytes, float]]:
    at = 0 if text.startswith(name) else text.find(b"\n" + name) + 1
    while at or text.startswith(name):
        match = _SERIES.match(text, at + len(name))
        if match is not None:
            try:
                value = float(match[2])
            except ValueError:
                value = -1.0
            if isfinite(value) and value >= 0:
                labels = sorted(key + b"=" + said for key, said in _LABELS.findall(match[1] or b"") if key != b"pid")
                yield b",".join(labels), value
        at = text.find(b"\n" + name, at + len(name)) + 1
        if at == 0:
            return
