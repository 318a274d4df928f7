"""What is asked of every contender: data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench import requests


@dataclass(frozen=True, slots=True)
class Workload:
    """`arguments` are the load generator's; durations in seconds, of a whole run and of a quick one."""

    name: str
    title: str
    request: Callable[[int, str], bytes]
    arguments: tuple[str, ...]
    seconds: float
    quick_s: float
    ramp_s: float = 0.0
    """CPU and memory are read after this, when the load is steady."""


PACED_STREAMS = 200
LARGE_AT_ONCE = 4
_STREAM = ("--stream", "--tokens", str(requests.TOKENS))
_LIFE_US = str(requests.TOKENS * 20_000)

# The paced streams come first: a contender's memory per stream is what its first ones add to a process at rest.
WORKLOADS = (
    Workload(
        "paced",
        f"{PACED_STREAMS} streams, a token every 20 ms",
        requests.paced,
        ("closed", "--connections", str(PACED_STREAMS), "--stagger-us", _LIFE_US, *_STREAM),
        seconds=4.0,
        quick_s=2.6,
        ramp_s=1.5,
    ),
    Workload("requests", "whole answers, 32 connections", requests.whole, ("closed", "--connections", "32"), 2.0, 0.8),
    Workload(
        "latency",
        "whole answers, 50 a second",
        requests.whole,
        ("rate", "--rate", "50", "--connections", "16"),
        seconds=4.0,
        quick_s=2.0,
    ),
    Workload(
        "burst",
        "64-token streams, 16 connections",
        requests.burst,
        ("closed", "--connections", "16", *_STREAM),
        seconds=2.0,
        quick_s=0.8,
    ),
    Workload(
        "large",
        f"10 MB bodies, {LARGE_AT_ONCE} connections",
        requests.large,
        ("closed", "--connections", str(LARGE_AT_ONCE)),
        seconds=2.0,
        quick_s=0.8,
    ),
)
