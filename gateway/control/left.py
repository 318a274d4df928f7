"""What levels have used of their limits by now, as the ledger in Redis has it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gateway.control.redis import client
from gateway.core.ledger import account, keys
from gateway.core.snapshot import LevelLimits

BIN_MS = 100
FIELDS = ("b", "r", "t", "h", "c")


@dataclass(frozen=True, slots=True)
class Used:
    """Requests and tokens in the last 60 seconds (tokens with those that are held for running requests), requests at
    once, nano-units of money in the running period, held ones too; None where the ledger does not know yet."""

    requests: int
    tokens: int
    concurrent: int
    money: int | None = None


def used(levels: Iterable[LevelLimits]) -> dict[tuple[str, str], Used]:
    """By level and id, in one round trip. Raises `redis.RedisError`."""
    asked = list(levels)
    with client().pipeline(transaction=False) as pipe:
        pipe.time()
        for one in asked:
            name = account.name(one.level, one.id)
            pipe.hmget(keys.account(name), *FIELDS)
            pipe.lrange(keys.window(name), 0, -1)
            pipe.hmget(keys.purse(name, one.period), "s", "h", "k")
        (seconds, microseconds), *answers = pipe.execute()
    tenth = (seconds * 1000 + microseconds // 1000) // BIN_MS
    found = {}
    for i, one in enumerate(asked):
        minute, older, purse = answers[3 * i : 3 * i + 3]
        found[one.level, one.id] = reckoned(_whole(minute), older, _whole(purse), tenth)
    return found


def reckoned(minute: Sequence[int], older: Sequence[bytes], purse: Sequence[int], tenth: int) -> Used:
    """The ledger looks at an account only when it is used: what has left the minute since then is taken off here."""
    newest, requests, tokens, held, concurrent = minute
    first = tenth - int(keys.WINDOW_S * 1000) // BIN_MS
    if newest < first:
        requests = tokens = 0
    else:
        for entry in older:
            at, requests_then, tokens_then = map(int, entry.split(b":"))
            if at >= first:
                break
            requests, tokens = requests - requests_then, tokens - tokens_then
    spent, held_money, seeded = purse
    money = spent + held_money if seeded else None
    return Used(max(0, requests), max(0, tokens) + held, concurrent, money)


def _whole(values: Sequence[bytes | None]) -> list[int]:
    return [int(value or 0) for value in values]
