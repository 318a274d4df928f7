"""What is said to who asks for more than a level allows. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import IntEnum
from math import ceil

from gateway.core.errors import GatewayError, Unavailable
from gateway.core.ledger.worst import Worst
from gateway.core.snapshot import LevelLimits
from llmgw.money import written as money


class Limit(IntEnum):
    """As the scripts number them."""

    REQUESTS = 1
    TOKENS = 2
    CONCURRENT = 3
    BUDGET = 4
    UNSEEDED = 5
    """A budget of which nobody knows what is spent."""


class RateLimited(GatewayError):
    status, kind, code = 429, "rate_limit_exceeded", "rate_limit_exceeded"

    def __init__(self, sentence: str, limit: Limit, *, retry_after_s: int | None = None):
        super().__init__(sentence, retry_after_s=retry_after_s)
        self.limit = limit

    def headers(self) -> list[tuple[bytes, bytes]]:
        found = super().headers()
        return found or [(b"x-should-retry", b"false")]


class BudgetSpent(RateLimited):
    """OpenAI's shape, which its clients know."""

    kind, code = "insufficient_quota", "insufficient_quota"


def refusal(level: LevelLimits, limit: Limit, wait_ms: int, used: int, held: int, worst: Worst) -> RateLimited:
    """`wait_ms`: until it would fit; `used` includes what is `held` by requests under way."""
    wait_s = max(1, ceil(wait_ms / 1000))
    limits, whose = level.limits, _whose(level)
    if limit is Limit.REQUESTS:
        said = f"{whose} allows {limits.rpm} requests a minute, and {used} were made: try again in {wait_s} s"
        return RateLimited(said, limit, retry_after_s=wait_s)
    if limit is Limit.TOKENS:
        said = (
            f"{whose} allows {limits.tpm} tokens a minute: {used - held} were used, {held} are held by requests under "
            f"way, and this one may use {worst.tokens}: try again in {wait_s} s, or with a smaller max_tokens"
        )
        return RateLimited(said, limit, retry_after_s=wait_s)
    if limit is Limit.CONCURRENT:
        said = (
            f"{whose} allows {limits.concurrent} requests at once, and so many are under way: try again in {wait_s} s"
        )
        return RateLimited(said, limit, retry_after_s=wait_s)
    said = f"{whose} has spent {money(used - held)} of its budget of {money(limits.budget or 0)}{_until(level)}"
    if held:
        said += f", and requests under way hold {money(held)}"
    said += f"; this one may cost {money(worst.money)}: "
    if wait_ms:
        said += f"{_AGAIN} {wait_s} s, or with a smaller max_tokens"
        return BudgetSpent(said, limit, retry_after_s=wait_s)
    return BudgetSpent(said + "ask for less, take a cheaper model, or ask for a larger budget", limit)


def never(levels: tuple[LevelLimits, ...], worst: Worst) -> RateLimited | None:
    """Why this request could not be admitted however long it waited; None: it could."""
    for level in levels:
        limits, whose = level.limits, _whose(level)
        if limits.rpm == 0:
            return RateLimited(f"{whose} allows no requests at all: ask who set its limits", Limit.REQUESTS)
        if limits.concurrent == 0:
            return RateLimited(f"{whose} allows no requests at all: ask who set its limits", Limit.CONCURRENT)
        if limits.tpm is not None and worst.tokens > limits.tpm:
            said = (
                f"this request may use {worst.tokens} tokens, and {whose} allows {limits.tpm} a minute: "
                "it can never fit; send a shorter prompt or a smaller max_tokens"
            )
            return RateLimited(said, Limit.TOKENS)
    return None


def spender(code: str, reason: str) -> str | None:
    """Of a refusal as a usage row has it: the level whose budget is spent, until its period ends or it gets a larger
    one. None: it is another refusal, or one that running requests cause and that passes with them."""
    if code != BudgetSpent.code or _AGAIN in reason:
        return None
    return next((level for level, whose in _WHOSE.items() if reason.startswith(f"{whose} has spent ")), None)


def away(why: str, retry_after_s: int) -> Unavailable:
    """The ledger cannot be asked, and what may be given without it is used up."""
    said = f"limits and budgets cannot be checked at the moment ({why}): try again in {retry_after_s} s"
    return Unavailable(said, code="ledger_away", retry_after_s=retry_after_s)


def _whose(level: LevelLimits) -> str:
    return _WHOSE.get(level.level, level.level)


_AGAIN = "try again in"
_WHOSE = {
    "key": "this key",
    "person": "this account",
    "project": "this project",
    "team": "this project's team",
    "organisation": "this project's organisation",
}


def _until(level: LevelLimits) -> str:
    if not level.until:
        return ""
    return f" until {datetime.fromtimestamp(level.until, UTC):%Y-%m-%d %H:%M} UTC"
