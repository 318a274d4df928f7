"""What an edge counts of a replica: never below nothing, never left behind; what was measured; what others say."""

from __future__ import annotations

import random

import pytest

from agent.engine import MetricNames
from gateway.core import gauges, retry_after, router
from gateway.core.load import Gauges, Load
from gateway.core.router import Ask
from gateway.core.snapshot import Endpoint, Endpoints
from gateway.edge.others import Others
from gateway.edge.replicas import Fleet

VLLM = MetricNames(
    running="vllm:num_requests_running", waiting="vllm:num_requests_waiting", kv_cache_usage="vllm:kv_cache_usage_perc"
)


def load(name: str = "a", **fields: object) -> Load:
    return Load(Endpoint(name, "m", "h", 1, "n", **fields))  # type: ignore[arg-type]


def test_counts_return_to_nothing_whatever_happens() -> None:
    draw, found = random.Random(5), load(parallel=4)
    tickets = []
    for step in range(3000):
        if draw.random() < 0.5:
            size = draw.randrange(5000)
            tickets.append(found.begin(float(step), size, draw.randrange(size + 900)))
        elif tickets:
            ticket = tickets.pop(draw.randrange(len(tickets)))
            for does in draw.sample(["first", "served", "failed", "end", "end", "told", "shared", "update"], 4):
                match does:
                    case "first" | "failed" | "served":
                        getattr(ticket, does)(float(step))
                    case "end":
                        ticket.end()
                    case "told":
                        found.told(Gauges(draw.randrange(3), None, draw.random()))
                    case "shared":
                        found.shared(draw.randrange(-2, 9))
                    case "update":
                        found.update(found.endpoint)
            ticket.end()
        assert found.in_flight == len(tickets)
        assert found.unread >= 0
        assert found.others >= 0
    for ticket in tickets:
        ticket.end()
    assert (found.in_flight, found.unread) == (0, 0)


def test_pace_is_learned_from_streams() -> None:
    found = load(parallel=2)
    for _ in range(30):
        ticket = found.begin(10.0, 10_000, 0)
        ticket.first(12.0)
        ticket.served(15.0, 2500, 0)
        ticket.end()
    assert found.pace.rate == pytest.approx(5000, rel=0.05)
    assert found.pace.service_s == pytest.approx(5.0)
    for _ in range(30):
        ticket = found.begin(10.0, 10_000, 9000)
        ticket.first(12.0)
        ticket.served(15.0, 2500, 0)
        ticket.end()
    assert found.pace.trust < 0.01, "an engine whose cache never holds what it should"
    assert found.pace.rate == pytest.approx(5000, rel=0.05), "by what had to be read, not by what was hoped"


def test_a_faster_replica_gets_more_of_what_nobody_has_read() -> None:
    slow, fast = load("slow", parallel=8), load("fast", parallel=8)
    for replica, rate in ((slow, 1000), (fast, 4000)):
        for _ in range(50):
            replica.pace.answered(0.0, 1.0, rate, 0)
        replica.pace.served(1.0)
    got = {"slow": 0, "fast": 0}
    for _ in range(10):
        choice = router.choose([slow, fast], Ask(0.0, text=router.Text((1,), 8000)))
        assert isinstance(choice, router.Choice)
        got[choice.load.name] += 1
        choice.load.begin(0.0, 8000)
    assert 1 <= got["slow"] <= 2


def test_one_slow_moment_is_forgotten() -> None:
    slow, fast = load("slow"), load("fast")
    for _ in range(5):
        slow.pace.answered(0.0, 10.0, 1000, 0)
        fast.pace.answered(0.0, 0.1, 1000, 0)
    assert slow.pace.rate_at(0.0, 5050.0) < 0.8 * fast.pace.rate_at(0.0, 5050.0)
    assert slow.pace.rate_at(60.0, 5050.0) == fast.pace.rate_at(60.0, 5050.0) == 5050.0


def test_a_full_cache_is_load() -> None:
    full, free = load("full", parallel=8), load("free", parallel=8)
    full.told(Gauges(2, 0, 0.99))
    free.told(Gauges(5, 0, 0.3))
    choice = router.choose([full, free], Ask(0.0))
    assert isinstance(choice, router.Choice)
    assert choice.load is free


def test_what_an_engine_says_includes_ours() -> None:
    found = load(parallel=4)
    tickets = [found.begin(0.0) for _ in range(3)]
    found.told(Gauges(4, 1))
    assert found.others == 2
    found.shared(1)
    assert found.others == 2, "the other edges' requests are among them"
    found.told(Gauges())
    assert found.others == 1, "unknown is not idle"
    for ticket in tickets:
        ticket.end()


B059 = b"""# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m",pid="277"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="m",pid="273"} 0.653
vllm:kv_cache_usage_perc{engine="1",model_name="m",pid="273"} 0.9
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="1",model_name="m"} 7.0
vllm:request_success_created{model_name="m"} 1.7537953269352946e+09
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (B059, Gauges(None, 5, 0.9)),
        (B059.replace(b"kv_cache", b"gpu_cache"), Gauges(None, 5, 0.9)),
        (B059 + b'vllm:gpu_cache_usage_perc{engine="0"} 0.99\n', Gauges(None, 5, 0.9)),
        (b"vllm:kv_cache_usage_perc NaN\nvllm:num_requests_waiting NaN\nvllm:num_requests_running +Inf\n", Gauges()),
        (b"", Gauges()),
        (b"<html>vllm:num_requests_waiting 5</html>", Gauges()),
        (b'vllm:num_requests_waiting{model_name="a\\",b",engine="0"} 3 1700000000\n', Gauges(None, 3)),
        (b'vllm:num_requests_waiting{pid="1"} 0\nvllm:num_requests_waiting{pid="2"} 4', Gauges(None, 4)),
        (b"vllm:num_requests_running 0.0\n", Gauges(0)),
    ],
)
def test_b059_gauges(text: bytes, expected: Gauges) -> None:
    assert gauges.read(text, VLLM) == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry_after": b"30"}, 30.0),
        ({"retry_after": b"Wed, 21 Oct 2026 07:28:00 GMT", "date": b"Wed, 21 Oct 2026 07:27:30 GMT"}, 30.0),
        ({"retry_after": b"Wed, 21 Oct 2026 07:28:00 GMT"}, 12.0),
        ({"retry_after": b"", "after_ms": b"1500"}, 1.5),
        ({"retry_after": b"-5"}, None),
        ({"retry_after": b"9999999"}, retry_after.CEILING_S),
        ({"retry_after": b"soon"}, None),
        ({"retry_after": b"nan"}, None),
        ({"retry_after": b"Wed, 21 Oct 2026 07:28:00 GMT", "date": b"Wed, 21 Oct 2026 07:29:00 GMT"}, None),
        ({"retry_after": b"Wed, 99 Oct 99999 07:28:00 GMT"}, None),
        ({"retry_after": b""}, None),
    ],
)
def test_b051_retry_after(headers: dict[str, bytes], expected: float | None) -> None:
    now = 1_792_567_668.0  # 12 s before the date above
    assert retry_after.wait_s(**headers, now=now) == expected  # type: ignore[arg-type]


def test_an_edge_that_stands_still_counts_for_nothing() -> None:
    fleet = Fleet("secret")
    fleet.update(Endpoints(endpoints=(Endpoint("a", "m", "h", 1, "n"), Endpoint("b", "m", "h", 2, "n"))))
    others = Others("me", fleet)
    a, b = fleet.of("m")
    word = b'{"n":%d,"in_flight":{"a":3,"gone":1}}'
    assert others.heard({b"me": others.mine(), b"x": word % 1, b"y": b"nonsense"}, 10.0) == []
    assert (a.others, b.others) == (3, 0)
    assert others.heard({b"x": word % 1}, 14.0) == []
    assert a.others == 3
    assert others.heard({b"x": word % 1}, 16.0) == []
    assert a.others == 0
    assert others.heard({b"x": word % 1}, 80.0) == [b"x"]
    others.heard({b"x": word % 2}, 81.0)
    assert a.others == 3
    others.silent()
    assert a.others == 0
