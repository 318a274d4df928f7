"""What pages say is used is what the ledger's own script says, whenever they look."""

from __future__ import annotations

import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.control import left
from gateway.core.ledger import account, keys
from gateway.core.ledger.account import Record
from tests.gateway.ledger.script import Script, seed
from tests.gateway.ledger.world import PERIOD, level

NOW = 1_800_000_000_000
LIMITS = level("project", rpm=1000, tpm=100_000, concurrent=100, budget=10**9)
STEPS = st.lists(
    st.tuples(st.integers(0, 40_000), st.integers(1, 50), st.sampled_from(["runs", "ends"])), min_size=1, max_size=12
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS, st.integers(0, 70_000))
def test_pages_read_what_the_script_wrote(store: redis.Redis, steps: list[tuple[int, int, str]], later_ms: int) -> None:
    store.flushdb()
    bound = account.account(LIMITS)
    seed(store, bound.name, PERIOD)
    script, now = Script(store), NOW
    for i, (after, tokens, becomes) in enumerate(steps):
        now += after
        record = Record(tokens, tokens, (bound,))
        script.reserve(f"r{i}", record, now)
        if becomes == "ends":
            script.settle(f"r{i}", record, tokens, tokens, 10, now)
    now += later_ms
    found = read(store, now)
    # A reservation of nothing tells what is left: of requests it takes one, of the rest none.
    _, requests, of, tokens, of_tokens, money, of_money = script.reserve("last", Record(0, 0, (bound,)), now)[:7]
    assert found.requests == of - requests - 1
    assert found.tokens == of_tokens - tokens
    assert found.money == of_money - money


def read(store: redis.Redis, now_ms: int) -> left.Used:
    """`left.used`, at the tests' time."""
    name = account.name(LIMITS.level, LIMITS.id)
    minute = [int(value or 0) for value in store.hmget(keys.account(name), *left.FIELDS)]
    purse = [int(value or 0) for value in store.hmget(keys.purse(name, PERIOD), "s", "h", "k")]
    return left.reckoned(minute, store.lrange(keys.window(name), 0, -1), purse, now_ms // left.BIN_MS)
