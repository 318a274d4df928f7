"""What an edge may admit by itself while the ledger is away: its share of each limit, for a bounded time.

A share is a limit divided by the edges that there were. Of a budget it is what was last known to be left, and nothing
where that is not known.
"""

from __future__ import annotations

import time

from gateway.core.ledger.account import NOTHING, Account, Record
from gateway.core.ledger.book import Book, Refused


class Allowance:
    """One outage's."""

    def __init__(self, window_ms: int, edges: int, left: dict[str, int]) -> None:
        self._book, self._edges, self._left = Book(window_ms), max(1, edges), left
        self.since = time.monotonic()

    def reserve(self, id: str, record: Record) -> Refused | None:
        return self._book.reserve(id, self._share(record), self._now())

    def settle(self, id: str, tokens: int, money: int, ms: int) -> None:
        """Of something that it admitted; nothing of anything else."""
        share = self._book.live.get(id)
        if share is not None:
            self._book.settle(id, share, tokens, money, ms, self._now())

    def _share(self, record: Record) -> Record:
        return Record(record.tokens, record.money, tuple(map(self._account, record.accounts)))

    def _account(self, account: Account) -> Account:
        def share(limit: int) -> int:
            return limit if limit < 0 else limit // self._edges

        found = Account(
            account.name, share(account.rpm), share(account.tpm), share(account.concurrent), NOTHING, account.period
        )
        if account.budget < 0:
            return found
        left = self._left.get(purse_name(account))
        self._book.purse(account).seeded = left is not None
        return Account(
            account.name, found.rpm, found.tpm, found.concurrent, max(0, left or 0) // self._edges, account.period
        )

    @staticmethod
    def _now() -> int:
        return int(time.monotonic() * 1000)


def purse_name(account: Account) -> str:
    return f"{account.name}:{account.period}"
