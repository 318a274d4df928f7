"""What one measured cell says: one workload on one contender in one round. A value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """Of a cell's samples, in microseconds."""

    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class Cell:
    """One workload on one contender in one round."""

    contender: str
    workload: str
    round: int
    seconds: float
    answered: int
    """All; rates count `in_time`."""
    in_time: int
    errors: int
    tokens: int
    """Within the time; `all_tokens` also after it."""
    all_tokens: int
    bytes_sent: int
    cpu_s: float
    """Of the contender's process, in the whole cell."""
    cpu_share: float
    """Of one core; under a paced load while it is steady."""
    added_kb: int
    """To the contender's resident memory: under a paced load while it is steady, else at the peak."""
    others_share: float
    """What processes that are not ours took of the two cores: a noisy machine makes doubtful figures."""
    fault: str = ""
    latency: Spread | None = None
    ttft: Spread | None = None
    lag: Spread | None = None
    """From a token's leaving the engine to its arrival."""
