"""Several edges in any order on the real script, and edges that die: the sums are those of what was admitted and used,
and no limit is passed."""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from gateway.core.ledger.account import Account, Record
from tests.gateway.ledger.script import Script, seed
from tests.gateway.ledger.test_script import Plain

WINDOW = 3_000
EXAMPLES = int(os.environ.get("LLMGW_TEST_EXAMPLES", "10"))
LEVELS = (Account("project:p", 12, 200, 6, 900, "total"), Account("key:k", 9, 150, 5, 700, "total"))
START = 1_700_000_000_000


class Machine(RuleBasedStateMachine):
    """`plain` is what happened; `now` is the server's clock."""

    held = Bundle("held")
    store: redis.Redis

    def __init__(self) -> None:
        super().__init__()
        self.store.flushdb()
        for account in LEVELS:
            seed(self.store, account.name, account.period)
        self.now, self.numbers, self.names = START, itertools.count(), itertools.count()
        self.plain = Plain(WINDOW, {account.name: account for account in LEVELS})
        self.edges = [self._edge() for _ in range(3)]

    def _edge(self) -> Script:
        return Script(self.store, f"e{next(self.names)}", WINDOW)

    @rule(target=held, which=st.integers(0, 2), tokens=st.integers(0, 80), money=st.integers(0, 300))
    def reserve(self, which: int, tokens: int, money: int) -> Any:
        edge, id, record = self.edges[which], f"r{next(self.numbers)}", Record(tokens, money, LEVELS)
        if edge.reserve(id, record, self.now)[0] != 1:
            return multiple()
        self.plain.live[id] = record
        self.plain.requests += [(self.now, account.name) for account in LEVELS]
        return edge, id

    @rule(one=consumes(held), part=st.integers(0, 100))
    def settle(self, one: tuple[Script, str], part: int) -> None:
        edge, id = one
        record = self.plain.live.pop(id, None)
        if record is None:  # its edge is dead
            return
        tokens, money = record.tokens * part // 100, record.money * part // 100
        edge.settle(id, record, tokens, money, 500, self.now)
        self.plain.tokens += [(self.now, account.name, tokens) for account in LEVELS]
        for account in LEVELS:
            self.plain.spent[account.name] = self.plain.spent.get(account.name, 0) + money

    @rule(one=held)
    def tell_again(self, one: tuple[Script, str]) -> None:
        edge, id = one
        if id in self.plain.live:
            edge.force(id, self.plain.live[id], self.now)

    @rule(ms=st.integers(1, 2_000))
    def wait(self, ms: int) -> None:
        self.now += ms
        for edge in self.edges:
            edge.batch(self.now)

    @rule(which=st.integers(0, 2))
    def die(self, which: int) -> None:
        """Nothing more is heard of it; after its lease another gives back what it held."""
        dead = self.edges[which]
        self.edges[which] = self._edge()
        gone = [key.decode() for key in self.store.hkeys(f"llmgw:ledger:e:{dead.edge}") if not key.startswith(b"#")]
        self.now += 10_001
        for look in (False, True):
            for edge in self.edges:
                edge.batch(self.now, look=look)
        for id in gone:
            del self.plain.live[id]

    @invariant()
    def nothing_is_passed_and_the_sums_are_true(self) -> None:
        self.plain.check()
        for account in LEVELS:
            held = list(self.plain.live.values())
            found = self.store.hmget(f"llmgw:ledger:a:{account.name}", "c", "h")
            assert [int(n or 0) for n in found] == [len(held), sum(r.tokens for r in held)]
            purse = self.edges[0].purse(account.name, account.period)
            assert purse == (self.plain.spent.get(account.name, 0), sum(r.money for r in held))


@pytest.fixture
def machine(store: redis.Redis) -> type[Machine]:
    Machine.store = store
    return Machine


def test_edges_in_any_order(machine: type[Machine]) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=EXAMPLES, stateful_step_count=40, deadline=None, suppress_health_check=checks),
    )
