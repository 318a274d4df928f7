"""A request's life as a bar."""

from __future__ import annotations

from typing import Any

import pytest

from llmgw.portal.life import life


@pytest.mark.parametrize(
    ("row", "kinds"),
    [
        ({"duration_ms": None}, [("nothing", None)]),
        ({"duration_ms": 1000.0, "ttft_ms": 100.0, "outcome": "ok"}, [("first", 100.0), ("answer", 900.0)]),
        ({"duration_ms": 1000.0, "outcome": "ok"}, [("whole", 1000.0)]),
        ({"duration_ms": 20.0, "outcome": "refused"}, [("end", 20.0)]),
        (
            {"duration_ms": 1000.0, "queued_ms": 200.0, "dispatched_ms": 500.0, "attempts": 2, "ttft_ms": 600.0},
            [("queue", 200.0), ("tries", 300.0), ("first", 100.0), ("answer", 400.0)],
        ),
        (
            {"duration_ms": 1000.0, "queued_ms": 0.0, "dispatched_ms": 5.0, "attempts": 1, "ttft_ms": 600.0},
            [("first", 600.0), ("answer", 400.0)],
        ),
        ({"duration_ms": 100.0, "queued_ms": 300.0, "outcome": "client_left"}, [("queue", 100.0), ("end", 0.0)]),
    ],
)
def test_stretches(row: dict[str, Any], kinds: list[tuple[str, float | None]]) -> None:
    found = life(row)
    assert [(s.kind, s.ms) for s in found] == kinds
    assert sum(float(s.width) for s in found) == pytest.approx(1000.0, abs=0.2)
    assert all(str(s.words) for s in found)
