"""What a request is let in for, and what it costs in the end: prices, the ledger, and what holds while that is away."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from gateway.core.ledger import account, left, refusals
from gateway.core.ledger.account import NOTHING, Bound, Record
from gateway.core.ledger.refusals import Limit
from gateway.core.ledger.worst import NOTHING_USED, Estimates, Worst, worst
from gateway.core.principal import Principal
from gateway.core.request import Request
from gateway.core.snapshot import ModelEntry, Policies
from gateway.core.usage import Usage
from gateway.edge.ledger.allowance import Allowance, purse_name
from gateway.edge.ledger.ledger import Ledger
from gateway.edge.ledger.operation import Result
from llmgw import metrics, price, series
from llmgw.price import Price

Headers = list[tuple[bytes, bytes]]
AGAIN_S = 5
"""For who is refused while the ledger is away."""


class Hold(msgspec.Struct):
    """What one request holds, from its admission until it is settled. `entry` answers it."""

    id: str
    entry: ModelEntry
    prices: Callable[[ModelEntry], Price | None]
    began: float
    worst: Worst | None = None
    """None: nothing limits it."""
    record: bytes | None = None
    """None: nothing is held."""
    max_tokens: int | None = None
    """What the engine must be told not to pass."""
    fallback: bool = False
    """Its budget is spent, and a cheaper model answers."""
    headers: Headers = []


class Till:
    """One edge's. `edges`: how many there are, this one too."""

    def __init__(self, ledger: Ledger, figures: metrics.Figures, edges: Callable[[], int]) -> None:
        self.ledger, self._figures, self._edges = ledger, figures, edges
        self._estimates = Estimates()
        self._left: dict[str, int] = {}
        """Of each budget, what was left of it when the ledger last told."""
        self._away: Allowance | None = None
        self._unseeded: dict[str, Allowance] = {}

    def unlimited(self, id: str, at: float, who: Principal, entry: ModelEntry, policies: Policies) -> Hold | None:
        """For whom nothing limits; None: `reserve`."""
        if account.of(who).accounts:
            return None
        return Hold(id, entry, _prices(at, policies), time.monotonic())

    async def reserve(
        self,
        id: str,
        at: float,
        who: Principal,
        request: Request,
        entry: ModelEntry,
        policies: Policies,
        when_spent: ModelEntry | None = None,
        free: bool = False,
    ) -> Hold:
        """Let it in, for `entry` or, where a budget does not bear that, for `when_spent`; raises `RateLimited`,
        `BudgetSpent`, and `Unavailable` where limits cannot be checked. `at`: when it came (Unix seconds). `free`: it
        uses no tokens, and costs nothing."""
        prices, began, bound = _prices(at, policies), time.monotonic(), account.of(who)
        if not bound.accounts:
            return Hold(id, entry, prices, began)
        if free:
            choices = [(entry, NOTHING_USED)]
        else:
            choices = [(m, self._worst(request, m, prices(m), policies)) for m in (entry, when_spent) if m is not None]
        if (never := refusals.never(bound.levels, choices[0][1])) is not None:
            raise self._refused(never, bound)
        return await self._admit(id, bound, choices, prices, began, policies)

    async def move(self, hold: Hold, who: Principal, request: Request, entry: ModelEntry, policies: Policies) -> Hold:
        """Another model answers: what it may use at the most is held instead of what was. It stays one request of the
        limits on requests. Raises as `reserve` does, and nothing is held then."""
        bound = account.of(who)
        if not bound.accounts:
            return msgspec.structs.replace(hold, entry=entry)
        self._release(hold)
        found = self._worst(request, entry, hold.prices(entry), policies)
        if (never := refusals.never(bound.levels, found)) is not None:
            raise self._refused(never, bound)
        counted = tuple(msgspec.structs.replace(a, rpm=NOTHING) for a in bound.accounts)
        again = Bound(counted, bound.levels, bound.budgets)
        return await self._admit(f"{hold.id}+", again, [(entry, found)], hold.prices, hold.began, policies)

    async def _admit(
        self,
        id: str,
        bound: Bound,
        choices: list[tuple[ModelEntry, Worst]],
        prices: Callable[[ModelEntry], Price | None],
        began: float,
        policies: Policies,
    ) -> Hold:
        packed = [account.pack(Record(w.tokens, w.money, bound.accounts)) for _, w in choices]
        self.ledger.window_ms = int(policies.window_s * 1000)
        result = await self.ledger.reserve(id, packed)
        if result is None:
            which = self._without(id, bound, choices, packed, policies)
            result = []
        elif result[0] > 0:
            which = result[0] - 1
        elif result[2] == Limit.UNSEEDED:
            which = self._unknown(id, bound, result[1] - 1, choices, packed, policies)
            result = []
        else:
            _, level, limit, wait_ms, used, held = result
            why = refusals.refusal(bound.levels[level - 1], Limit(limit), wait_ms, used, held, choices[0][1])
            raise self._refused(why, bound)
        return self._held(id, bound, *choices[which], prices, began, packed[which], result, which > 0, policies)

    def settle(
        self, hold: Hold, request: Request | None, counts: Usage, charged: bool, entry: ModelEntry
    ) -> int | None:
        """Once: nano-units, None where nobody priced it. `entry`: what answered. Not `charged`: nothing was used."""
        prompt, completion = (counts.prompt or 0, counts.completion or 0) if charged else (0, 0)
        found = hold.prices(entry)
        cost = None if found is None else found.of(prompt, completion, counts.cached or 0)
        if hold.record is not None:
            self._settle(hold, prompt + completion, cost or 0, int((time.monotonic() - hold.began) * 1000))
            if request is not None and counts.prompt is not None and charged:
                self._estimates.learn(hold.entry.name, request.prompt_tokens, counts.prompt)
        return cost

    # -- helpers, in call order

    def _release(self, hold: Hold) -> None:
        if hold.record is not None:
            self._settle(hold, 0, 0, 0)
            hold.record = None

    def _settle(self, hold: Hold, tokens: int, money: int, ms: int) -> None:
        assert hold.record is not None
        self.ledger.settle(hold.id, hold.record, tokens, money, ms)
        for allowance in (self._away, *self._unseeded.values()):
            if allowance is not None:
                allowance.settle(hold.id, tokens, money, ms)

    def _worst(self, request: Request, entry: ModelEntry, at: Price | None, policies: Policies) -> Worst:
        return worst(request, entry, at or _FREE, policies.unnamed_tokens, self._estimates.factor(entry.name))

    def _refused(self, why: refusals.RateLimited, bound: Bound) -> refusals.RateLimited:
        self._figures.add(series.LEDGER_REFUSED, (why.limit.name.lower(),))
        return why

    def _without(
        self, id: str, bound: Bound, choices: list[tuple[ModelEntry, Worst]], packed: list[bytes], policies: Policies
    ) -> int:
        """The ledger does not answer: by the allowance, or not at all."""
        if policies.ledger_away == "refuse":
            raise self._turned_away("the ledger does not answer")
        if self._away is None:
            self._away = Allowance(self.ledger.window_ms, self._edges(), self._left)
        return self._allowed(self._away, "the ledger does not answer", id, bound, choices, packed, policies)

    def _unknown(
        self,
        id: str,
        bound: Bound,
        level: int,
        choices: list[tuple[ModelEntry, Worst]],
        packed: list[bytes],
        policies: Policies,
    ) -> int:
        """The ledger has lost, or does not know yet, what is spent of a budget."""
        why = "what is spent of a budget is not known yet"
        if policies.ledger_away == "refuse":
            raise self._turned_away(why)
        name = purse_name(bound.accounts[level])
        found = self._unseeded.setdefault(name, Allowance(self.ledger.window_ms, self._edges(), self._left))
        return self._allowed(found, why, id, bound, choices, packed, policies)

    def _allowed(
        self,
        allowance: Allowance,
        why: str,
        id: str,
        bound: Bound,
        choices: list[tuple[ModelEntry, Worst]],
        packed: list[bytes],
        policies: Policies,
    ) -> int:
        if time.monotonic() - allowance.since > policies.ledger_away_s:
            raise self._turned_away(why)
        for which, (_, found) in enumerate(choices):
            if allowance.reserve(id, Record(found.tokens, found.money, bound.accounts)) is None:
                self._figures.add(series.LEDGER_LOCAL)
                self.ledger.force(id, packed[which])
                return which
        raise self._turned_away(f"{why}, and what this gateway may admit without is used up")

    def _turned_away(self, why: str) -> Exception:
        self._figures.add(series.LEDGER_REFUSED, ("away",))
        return refusals.away(why, AGAIN_S)

    def _held(
        self,
        id: str,
        bound: Bound,
        entry: ModelEntry,
        found: Worst,
        prices: Callable[[ModelEntry], Price | None],
        began: float,
        packed: bytes,
        result: Result,
        fallback: bool,
        policies: Policies,
    ) -> Hold:
        if result:
            # Not at once: a Redis that comes and goes must not give a fresh allowance each time.
            if self._away is not None and time.monotonic() - self._away.since > policies.window_s:
                self._away = None
            if bound.budgets:
                self._remember(bound, result)
            headers = left.headers(result)
        else:
            headers = [(b"x-llmgw-ledger", b"away")]
        at = prices(entry)
        bounded = bound.budgets and at is not None and at.completion > 0 and not found.named and found.each > 0
        if fallback:
            headers.append((b"x-llmgw-fallback", b"budget"))
        if bounded:
            headers.append((b"x-llmgw-max-tokens", b"%d" % found.each))
        return Hold(id, entry, prices, began, found, packed, found.each if bounded else None, fallback, headers)

    def _remember(self, bound: Bound, result: Result) -> None:
        budgets = [a for a in bound.accounts if a.budget >= 0]
        for one, money in zip(budgets, result[7:], strict=True):
            if money == NOTHING:
                continue
            name = purse_name(one)
            self._left[name] = max(0, money)
            if self._unseeded:
                self._unseeded.pop(name, None)


def _prices(at: float, policies: Policies) -> Callable[[ModelEntry], Price | None]:
    """What a model costs a request that came `at`."""
    usual = policies.default_price

    def prices(model: ModelEntry) -> Price | None:
        found = price.at(model.prices, at) if model.prices else None
        return found if found is not None or usual.free else usual

    return prices


_FREE = Price()
