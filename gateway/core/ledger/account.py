"""What one request binds: an account for each level that limits it, and the record of what is held there. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import msgspec

from gateway.core.principal import Principal
from gateway.core.snapshot import LevelLimits

NOTHING = -1
"""As a limit: the level does not say."""


class Account(msgspec.Struct, frozen=True, array_like=True):
    """One level's limits, as they stand in a record; -1 says nothing. `budget` is in nano-units, for `period`."""

    name: str
    rpm: int = NOTHING
    tpm: int = NOTHING
    concurrent: int = NOTHING
    budget: int = NOTHING
    period: str = ""


class Record(msgspec.Struct, frozen=True, array_like=True):
    """What a request holds until it is settled: tokens, and nano-units of money."""

    tokens: int
    money: int
    accounts: tuple[Account, ...]


@dataclass(frozen=True, slots=True)
class Bound:
    """The accounts of one principal, and the levels that they stand for, in the same order."""

    accounts: tuple[Account, ...]
    levels: tuple[LevelLimits, ...]
    budgets: bool
    """One of them limits money."""


@lru_cache(maxsize=4096)
def bound(scope: tuple[LevelLimits, ...], key: LevelLimits | None) -> Bound:
    """Outermost first, the key's own last; levels that say nothing are left out."""
    levels = tuple(level for level in (*scope, *((key,) if key is not None else ())) if level.limits)
    return Bound(tuple(map(account, levels)), levels, any(level.limits.budget is not None for level in levels))


def of(who: Principal) -> Bound:
    """Found by what the two are, not by what they say: hashing a tree of limits costs more than all else here."""
    scope, key = who.scope.limits, who.limits
    if not scope and key is None:
        return _UNBOUND
    found = _bounds.get((id(scope), id(key)))
    if found is None:
        if len(_bounds) >= _MOST:
            _bounds.clear()
        found = _bounds[id(scope), id(key)] = scope, key, bound(scope, key)
    return found[2]


_UNBOUND = Bound((), (), False)
_MOST = 4096
_bounds: dict[tuple[int, int], tuple[tuple[LevelLimits, ...], LevelLimits | None, Bound]] = {}
"""Each holds what it was found by, so that nothing else has the same ids meanwhile."""


def account(level: LevelLimits) -> Account:
    limits = level.limits
    return Account(
        name(level.level, level.id),
        _figure(limits.rpm),
        _figure(limits.tpm),
        _figure(limits.concurrent),
        _figure(limits.budget),
        (level.period or limits.period) if limits.budget is not None else "",
    )


def name(level: str, id: str) -> str:
    """`project:4f…`: what an account is called in Redis."""
    return f"{level}:{id}"


def pack(record: Record) -> bytes:
    return msgspec.msgpack.encode(record)


def _figure(limit: int | None) -> int:
    return NOTHING if limit is None else limit
