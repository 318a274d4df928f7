"""The script in a real Redis against the pure book, step by step, and both against the plain sum of what happened."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import hypothesis.strategies as st
import redis
from hypothesis import HealthCheck, given, settings

from gateway.core.ledger.account import Account, Record
from gateway.core.ledger.book import Book
from tests.gateway.ledger.script import Script, seed

START = 1_700_000_000_000
WINDOW = 2_000
"""Short, so that much of it fits into a test."""


@dataclass
class Plain:
    """What happened, as a list: the reference that needs no understanding."""

    window_ms: int
    accounts: dict[str, Account] = field(default_factory=dict)
    requests: list[tuple[int, str]] = field(default_factory=list)
    tokens: list[tuple[int, str, int]] = field(default_factory=list)
    live: dict[str, Record] = field(default_factory=dict)
    spent: dict[str, int] = field(default_factory=dict)

    def check(self) -> None:
        """Nothing passes a limit in any window; at no time."""
        for name, account in self.accounts.items():
            made = sorted(at for at, whose in self.requests if whose == name)
            used = sorted((at, n) for at, whose, n in self.tokens if whose == name)
            for at in made:
                assert sum(at <= other <= at + self.window_ms for other in made) <= account.rpm
            for at, _ in used:
                assert sum(n for other, n in used if at <= other <= at + self.window_ms) <= account.tpm
            holding = [r for r in self.live.values() if any(a.name == name for a in r.accounts)]
            assert len(holding) <= account.concurrent
            assert self.spent.get(name, 0) + sum(r.money for r in holding) <= account.budget


PARENT = Account("organisation:o", 9, 90, 4, 500, "2026-11")
CHILDREN = (Account("key:a", 5, 60, 3, 300, "2026-11"), Account("key:b", 6, 50, 2, 400, "2026-11"))
STEP = st.one_of(
    st.tuples(st.just("reserve"), st.integers(0, 1), st.integers(0, 40), st.integers(0, 120)),
    st.tuples(st.just("settle"), st.integers(0, 9), st.integers(0, 100), st.integers(0, 100)),
    st.tuples(st.just("wait"), st.integers(0, 2_500), st.just(0), st.just(0)),
)


@settings(
    max_examples=int(os.environ.get("LLMGW_TEST_EXAMPLES", "40")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=st.lists(STEP, max_size=60))
def test_script_book_and_sum_agree(store: redis.Redis, steps: list[tuple[str, int, int, int]]) -> None:
    store.flushdb()
    script, book, plain, now = Script(store, window_ms=WINDOW), Book(WINDOW), Plain(WINDOW), START
    for account in (PARENT, *CHILDREN):
        seed(store, account.name, account.period)
        book.purse(account).seeded = True
        plain.accounts[account.name] = account
    for i, (what, a, b, c) in enumerate(steps):
        now += 1
        if what == "wait":
            now += a
        elif what == "reserve":
            record, id = Record(b, c, (PARENT, CHILDREN[a])), f"r{i}"
            result, refused = script.reserve(id, record, now), book.reserve(id, record, now)
            if refused is None:
                assert result[0] == 1
                assert tuple(result[1:7]) == book.left(record, now)
                plain.live[id] = record
                plain.requests += [(now, account.name) for account in record.accounts]
            else:
                assert result[:3] == [0, refused.account + 1, refused.limit]
                assert abs(result[3] - refused.wait_ms) <= 1
                assert result[4:] == [refused.used, refused.held]
        elif plain.live:
            id = sorted(plain.live)[a % len(plain.live)]
            record = plain.live.pop(id)
            tokens, money = record.tokens * b // 100, record.money * c // 100
            script.settle(id, record, tokens, money, 700, now)
            book.settle(id, record, tokens, money, 700, now)
            plain.tokens += [(now, account.name, tokens) for account in record.accounts]
            for account in record.accounts:
                plain.spent[account.name] = plain.spent.get(account.name, 0) + money
        plain.check()
    for account in (PARENT, *CHILDREN):
        purse = book.purse(account)
        assert script.purse(account.name, account.period) == (purse.spent, purse.held)


def test_a_wait_is_true(store: redis.Redis) -> None:
    """Of requests and tokens that are used: what is refused is admitted after the wait, and not before."""
    script = Script(store)
    account = Account("key:k", rpm=3, tpm=100)
    for i, at in enumerate((0, 5_000, 9_000)):
        assert script.reserve(f"a{i}", Record(10, 0, (account,)), START + at)[0] == 1
        script.settle(f"a{i}", Record(10, 0, (account,)), 10, 0, 500, START + at + 500)
    _, _, limit, wait, used, _ = script.reserve("b", Record(10, 0, (account,)), START + 10_000)
    assert (limit, used) == (1, 3)
    assert script.reserve("c", Record(10, 0, (account,)), START + 10_000 + wait - 101)[0] == 0
    assert script.reserve("d", Record(10, 0, (account,)), START + 10_000 + wait)[0] == 1


def test_an_exact_fit_is_admitted(store: redis.Redis) -> None:
    script = Script(store)
    account = Account("key:k", 1, 10, 1, 50, "total")
    seed(store, account.name, "total")
    record = Record(10, 50, (account,))
    assert script.reserve("a", record, START) == [1, 0, 1, 0, 10, 0, 50, 0]
    assert script.reserve("b", record, START)[:3] == [0, 1, 4]


def test_what_is_refused_leaves_nothing(store: redis.Redis) -> None:
    """All levels or none."""
    script = Script(store)
    wide, narrow = Account("project:p", 10, 100, 10), Account("key:k", 10, 5)
    assert script.reserve("a", Record(6, 0, (wide, narrow)), START)[:3] == [0, 2, 2]
    assert script.reserve("b", Record(5, 0, (wide,)), START)[1:5] == [9, 10, 95, 100]


def test_sums_stay_exact(store: redis.Redis) -> None:
    """Beyond 10¹⁴, where Lua's own way to write a number rounds."""
    script = Script(store)
    account = Account("key:k", budget=9_000_000_000_000_001, period="total")
    seed(store, account.name, "total", 8_999_999_999_999_990)
    assert script.reserve("a", Record(1, 11, (account,)), START)[0] == 1
    script.settle("a", Record(1, 11, (account,)), 1, 11, 5, START)
    assert script.purse(account.name, "total") == (9_000_000_000_000_001, 0)
    assert script.reserve("b", Record(1, 1, (account,)), START)[2] == 4


def test_another_model_when_a_budget_is_spent(store: redis.Redis) -> None:
    script = Script(store)
    account = Account("key:k", 2, budget=100, period="total")
    seed(store, account.name, "total", 99)
    dear, free = Record(10, 50, (account,)), Record(10, 0, (account,))
    assert script.reserve("a", dear, START, free)[0] == 2
    assert script.reserve("b", dear, START, free)[0] == 2
    assert script.reserve("c", dear, START, free)[:3] == [0, 1, 4]


def test_a_budget_of_which_nothing_is_known(store: redis.Redis) -> None:
    script = Script(store)
    account = Account("key:k", budget=100, period="total")
    assert script.reserve("a", Record(1, 5, (account,)), START)[:3] == [0, 1, 5]
    assert script.reserve("b", Record(1, 0, (account,)), START)[0] == 1


def test_a_dead_edge_gives_back(store: redis.Redis) -> None:
    """By whoever looks, once; and an edge that only slept settles what it did, also then."""
    dead, other = Script(store, "dead"), Script(store, "other")
    account = Account("key:k", 100, 100, 5, 1000, "total")
    seed(store, account.name, "total")
    record = Record(20, 200, (account,))
    for i in range(3):
        assert dead.reserve(f"a{i}", record, START)[0] == 1
    other.batch(START + 9_000, look=True)
    assert script_held(other) == 600
    other.batch(START + 10_001, look=True)
    other.batch(START + 10_002, look=True)
    assert script_held(other) == 0
    assert other.reserve("b", record, START + 10_003)[3] == 80
    dead.settle("a1", record, 7, 70, 5, START + 10_004)
    assert other.purse("key:k", "total") == (70, 200)


def script_held(script: Script) -> int:
    return script.purse("key:k", "total")[1]


def test_an_operation_counts_once(store: redis.Redis) -> None:
    script = Script(store)
    account = Account("key:k", 10, 100, 5, 1000, "total")
    seed(store, account.name, "total")
    record = Record(20, 200, (account,))
    script.force("a", record, START)
    script.force("a", record, START)
    assert script.purse("key:k", "total") == (0, 200)
    script.give_back("a", START)
    script.give_back("a", START)
    assert script.purse("key:k", "total") == (0, 0)
    assert script.reserve("b", record, START)[3] == 80


def test_a_clock_put_back_opens_nothing(store: redis.Redis) -> None:
    script = Script(store)
    account = Account("key:k", rpm=1)
    assert script.reserve("a", Record(0, 0, (account,)), START)[0] == 1
    for back in (1_000, 70_000, 59_000):
        assert script.reserve(f"b{back}", Record(0, 0, (account,)), START - back)[0] == 0
