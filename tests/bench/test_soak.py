"""A short soak leaves nothing behind; its verdict sees what does."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.soak.verdict import lines
from bench.soak.watch import Sample

REST = Sample(0.0, 50.0, 20, 9, 0, at_rest=True)


def run(grows: float, after: Sample) -> list[Sample]:
    busy = [Sample(float(s), 60.0 + grows * s, 60, 40, 30) for s in range(10, 110)]
    return [REST, replace(REST, s=5.0), *busy, replace(after, s=120.0)]


@pytest.mark.parametrize(
    ("grows", "after", "bad"),
    [
        (0.0, REST, set()),
        (0.05, REST, set()),
        (0.5, REST, {"memory"}),
        (5.0, REST, {"memory", "memory at the peak"}),
        (0.0, replace(REST, descriptors=23), {"descriptors"}),
        (0.0, replace(REST, tasks=11), {"tasks"}),
        (0.0, replace(REST, in_flight=1), {"requests in flight"}),
    ],
)
def test_the_verdict(grows: float, after: Sample, bad: set[str]) -> None:
    found = lines(run(grows, after), [], 10, 0, 0)
    assert {line.what for line in found if not line.good} == bad


def test_books_and_answers() -> None:
    found = lines(run(0.0, REST), ["slow: 1 of 2"], 10, 1, 0)
    assert {line.what for line in found if not line.good} == {"books", "answers"}


@pytest.mark.slow
def test_a_short_soak() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.soak", "--minutes", "0.1"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
