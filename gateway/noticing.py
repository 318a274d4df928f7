"""What of the traffic a person should be told: budgets that are spent, providers' keys that were refused.

A budget is spent when the ledger says so, and also when a request was refused for it: what is left may be too little
for any. It stays so until its period ends, it gets a larger one, or it is no more.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from catalog.selectors import OutsideKey
from gateway import selectors
from gateway.control import parts
from gateway.control.ledger import Money, budgets, spent
from gateway.core.ledger.refusals import spender
from gateway.core.snapshot import LevelLimits
from gateway.models import Usage
from gateway.spending import labels
from llmgw.cluster.actions import notices
from llmgw.cluster.core import notices as core
from llmgw.cluster.core.notices import Said, Standing
from llmgw.money import written as money

EVERY_S = 10.0
AGAIN_S = 60.0
"""A level whose requests go on being refused is not looked at again before."""
_last = 0.0
_refused: dict[tuple[str, str], float] = {}


def watch_when_due() -> None:
    """Raises `redis.RedisError`."""
    global _last
    if time.monotonic() - _last >= EVERY_S:
        _last = time.monotonic()
        watch()


def watch() -> None:
    """Raises `redis.RedisError`."""
    standings = {core.BUDGET_SPENT: _budgets()}
    if selectors.live() is not None:  # without an edge nobody knows of a key
        standings[core.KEY_REFUSED] = keys(selectors.outside())
    notices.stand(standings)


def refused(rows: Iterable[Usage]) -> None:
    """Rows that were shipped just now: whether one of them met the end of a budget."""
    found: set[tuple[str, str]] = set()
    now = time.monotonic()
    for row in rows:
        if row.outcome == Usage.Outcome.REFUSED and (level := spender(row.code, row.reason)):
            one = (level, getattr(row, level))
            if now - _refused.get(one, -AGAIN_S) >= AGAIN_S:
                found.add(one)
    if not found:
        return
    if len(_refused) > 10_000:
        _refused.clear()
    _refused.update(dict.fromkeys(found, now))
    levels = [one for one in budgets(parts.tenancy(time.time())) if (one.level, one.id) in found]
    standing = notices.of_kind(core.BUDGET_SPENT)
    said = {subject: _spent(one, subject) for subject, one in _named(levels).items()}
    notices.begin(core.BUDGET_SPENT, {subject: s for subject, s in said.items() if subject not in standing})


def keys(found: Mapping[str, Iterable[OutsideKey]]) -> Standing:
    """By endpoint (`external:MODEL#N`); `found` by model."""
    so: dict[str, Said] = {}
    well: dict[str, Said] = {}
    undecided: list[str] = []
    for model, key in ((model, key) for model, keys in found.items() for key in keys):
        if key.code == core.KEY_REFUSED:
            message = f"the provider of the model {model} refuses its key: {key.sentence}"
            so[key.endpoint] = Said(message, f"llmgw model show {model}", {"model": model})
        elif not key.code and key.usable:
            well[key.endpoint] = Said(f"the provider of the model {model} takes its key again: {key.endpoint}")
        else:
            undecided.append(key.endpoint)
    return Standing(so, well, undecided)


def _budgets() -> Standing:
    levels = budgets(parts.tenancy(time.time()))
    standing = notices.of_kind(core.BUDGET_SPENT)
    known = spent(levels)
    over = [one for one in levels if _is_spent(one, known[one.level, one.id])]
    so = {subject: _spent(one, subject) for subject, one in _named(over).items()}
    running = {(one.level, one.id): _terms(one) for one in levels}
    undecided = [
        subject
        for subject, row in standing.items()
        if running.get((row.detail.get("level", ""), row.detail.get("id", ""))) == row.detail.get("terms")
    ]
    return Standing(so, {}, undecided)


def _is_spent(level: LevelLimits, found: Money | None) -> bool:
    return found is not None and found.spent >= (level.limits.budget or 0)


def _terms(level: LevelLimits) -> str:
    """What a budget must differ in to be another."""
    return f"{level.period} {level.limits.budget}"


def _named(levels: Iterable[LevelLimits]) -> dict[str, LevelLimits]:
    by_level: dict[str, list[LevelLimits]] = {}
    for one in levels:
        by_level.setdefault(one.level, []).append(one)
    found: dict[str, LevelLimits] = {}
    for level, ones in by_level.items():
        names = labels(level, [one.id for one in ones])
        found |= {f"{level} {names[one.id]}": one for one in ones}
    return found


def _spent(level: LevelLimits, subject: str) -> Said:
    limits = level.limits
    budget = money(limits.budget or 0)
    if level.until:
        until = datetime.fromtimestamp(level.until, UTC)
        message = (
            f"the {subject} has spent its budget of {budget}: "
            f"until {until:%Y-%m-%d %H:%M} UTC priced models are refused"
        )
    else:
        message = f"the {subject} has spent its budget of {budget}: priced models are refused"
    whose = f"key:{level.id}" if level.level == "key" else subject.partition(" ")[2]
    command = f"llmgw limits show {shlex.quote(whose)}"
    detail = {"level": level.level, "id": level.id, "terms": _terms(level), "until": level.until}
    return Said(message, command, detail)
