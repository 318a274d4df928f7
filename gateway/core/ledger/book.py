"""The ledger's rule in one process's memory: what `batch.lua` decides in Redis, decided in Python. Pure.

An edge admits by it while Redis is away, on a share of each limit; and it is what the script is held against in tests.
Times are milliseconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import floor

from gateway.core.ledger.account import Account, Record
from gateway.core.ledger.refusals import Limit

BIN_MS = 100
FIRST_GUESS_MS = 10_000
"""How long a request takes, until one has told."""


@dataclass(frozen=True, slots=True)
class Refused:
    account: int
    limit: Limit
    wait_ms: int
    used: int
    held: int


@dataclass(slots=True)
class _State:
    """Of an account. `log`: bin, requests, tokens of the last minute, oldest first; `requests` and `tokens` sum it."""

    bin: int = 0
    log: deque[list[int]] = field(default_factory=deque)
    requests: int = 0
    tokens: int = 0
    concurrent: int = 0
    held: int = 0
    lasts_ms: float = 0.0
    uses: float = 0.0
    """The part of its reservation that a request uses."""


@dataclass(slots=True)
class Purse:
    spent: int = 0
    held: int = 0
    seeded: bool = False


class Book:
    def __init__(self, window_ms: int = 60_000) -> None:
        self._bins, self._window_ms = window_ms // BIN_MS, window_ms
        self._states: dict[str, _State] = {}
        self.purses: dict[str, Purse] = {}
        self.live: dict[str, Record] = {}

    def purse(self, account: Account) -> Purse:
        return self.purses.setdefault(f"{account.name}:{account.period}", Purse())

    def reserve(self, id: str, record: Record, now: int) -> Refused | None:
        """All or nothing; None: `record` is held under `id`."""
        refused = self._refusal(record, now)
        if refused is None:
            self.force(id, record, now)
        return refused

    def force(self, id: str, record: Record, now: int) -> None:
        """Hold it without asking; once."""
        if id in self.live:
            return
        self.live[id] = record
        for account in record.accounts:
            state = self._state(account, now)
            if account.rpm >= 0:
                self._log(state, 1, 0)
            if account.tpm >= 0:
                state.held += record.tokens
            if account.concurrent >= 0:
                state.concurrent += 1
            if account.budget >= 0 and record.money > 0:
                self.purse(account).held += record.money

    def settle(self, id: str, record: Record, tokens: int, money: int, ms: int, now: int) -> None:
        """What is held under `id` goes, what was used stays. Something that is not held only leaves its use."""
        had = self.live.pop(id, None) is not None
        for account in record.accounts:
            state = self._state(account, now)
            if had:
                self._let_go(state, account, record, tokens, ms)
            if account.tpm >= 0:
                self._log(state, 0, tokens)
            if account.budget >= 0:
                purse = self.purse(account)
                if had:
                    purse.held = max(0, purse.held - record.money)
                purse.spent += money

    def give_back(self, id: str, now: int) -> None:
        if (record := self.live.get(id)) is not None:
            self.settle(id, record, 0, 0, 0, now)

    def left(self, record: Record, now: int) -> tuple[int, int, int, int, int, int]:
        """Of the tightest level: requests left, of how many, tokens, of, money, of; -1: nothing says so."""
        requests, tokens, money = (-1, -1), (-1, -1), (-1, -1)
        for account in record.accounts:
            state = self._state(account, now)
            requests = _tighter(requests, account.rpm - state.requests, account.rpm)
            tokens = _tighter(tokens, account.tpm - state.tokens - state.held, account.tpm)
            if account.budget >= 0 and (purse := self.purse(account)).seeded:
                money = _tighter(money, account.budget - purse.spent - purse.held, account.budget)
        return (*requests, *tokens, *money)

    def _let_go(self, state: _State, account: Account, record: Record, tokens: int, ms: int) -> None:
        if account.tpm >= 0:
            state.held = max(0, state.held - record.tokens)
        if account.concurrent >= 0:
            state.concurrent = max(0, state.concurrent - 1)
        if ms > 0:
            state.lasts_ms = ms if ms > state.lasts_ms else state.lasts_ms * 0.9 + ms * 0.1
        if tokens > 0 and record.tokens > 0:
            part = tokens / record.tokens
            state.uses = part if part > state.uses else state.uses * 0.9 + part * 0.1

    def _refusal(self, record: Record, now: int) -> Refused | None:
        """A budget first, else what takes longest, else that nobody knows what is spent."""
        found = list(self._refusals(record, now))
        hard = [r for r in found if r.limit is Limit.BUDGET]
        soft = [r for r in found if r.limit < Limit.BUDGET]
        if hard:
            return hard[0]
        return max(soft, key=lambda r: r.wait_ms) if soft else found[0] if found else None

    def _refusals(self, record: Record, now: int) -> Iterator[Refused]:
        for i, account in enumerate(record.accounts):
            state = self._state(account, now)
            if account.rpm >= 0 and state.requests + 1 > account.rpm:
                wait = self._until_aged(state, 1, state.requests + 1 - account.rpm, now)
                yield Refused(i, Limit.REQUESTS, wait, state.requests, 0)
            if account.tpm >= 0 and state.tokens + state.held + record.tokens > account.tpm:
                wait = self._until_tokens(state, record.tokens, account.tpm, now)
                yield Refused(i, Limit.TOKENS, wait, state.tokens + state.held, state.held)
            if account.concurrent >= 0 and state.concurrent + 1 > account.concurrent:
                yield Refused(i, Limit.CONCURRENT, int(_lasts(state)), state.concurrent, state.concurrent)
            if account.budget >= 0 and record.money > 0:
                purse = self.purse(account)
                if not purse.seeded:
                    yield Refused(i, Limit.UNSEEDED, 0, 0, 0)
                elif purse.spent + purse.held + record.money > account.budget:
                    wait = 0 if purse.spent + record.money > account.budget else int(_lasts(state))
                    yield Refused(i, Limit.BUDGET, wait, purse.spent + purse.held, purse.held)

    def _state(self, account: Account, now: int) -> _State:
        state = self._states.setdefault(account.name, _State())
        state.bin = max(state.bin, now // BIN_MS)  # a clock that was put back must not empty the window
        while state.log and state.log[0][0] < state.bin - self._bins:
            _, requests, tokens = state.log.popleft()
            state.requests -= requests
            state.tokens -= tokens
        return state

    def _log(self, state: _State, requests: int, tokens: int) -> None:
        if not state.log or state.log[-1][0] < state.bin:
            state.log.append([state.bin, 0, 0])
        state.log[-1][1] += requests
        state.log[-1][2] += tokens
        state.requests += requests
        state.tokens += tokens

    def _until_aged(self, state: _State, what: int, need: float, now: int) -> int:
        for entry in state.log:
            need -= entry[what]
            if need <= 0:
                return (entry[0] + self._bins + 1) * BIN_MS - now
        return (state.bin + self._bins + 1) * BIN_MS - now

    def _until_tokens(self, state: _State, tokens: int, limit: int, now: int) -> int:
        over: float = state.tokens + state.held + tokens - limit
        if over <= state.tokens:
            return self._until_aged(state, 2, over, now)  # true whatever is held will use
        lasts = _lasts(state)
        # Whole tokens: Redis keeps the share in fourteen digits, and a hair must not decide which wait is told.
        expected = floor(state.held * state.uses + 1e-6) if state.lasts_ms > 0 and state.uses < 1 else state.held
        over = state.tokens + expected + tokens - limit
        if over <= 0:
            return int(lasts)
        if over <= state.tokens:
            return int(max(lasts, self._until_aged(state, 2, over, now)))
        return int(lasts + self._window_ms + BIN_MS)


def _lasts(state: _State) -> float:
    return state.lasts_ms if state.lasts_ms > 0 else FIRST_GUESS_MS


def _tighter(before: tuple[int, int], remaining: int, limit: int) -> tuple[int, int]:
    if limit >= 0 and (before[1] < 0 or remaining < before[0]):
        return max(0, remaining), limit
    return before
