"""Whether the money of a month is what it must be: rows against their sums, against the prices, against what Redis
says was spent, and tokens against what the edges counted.

What is under way explains a difference for a moment: the books are shipped first, and what moves is looked at again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import redis
from django.db.models import Sum

from gateway.control import ledger, parts, repricing, rollups
from gateway.control.ingesting import ingest
from gateway.control.redis import client
from gateway.models import UsageCorrection, UsageHour
from llmgw import metrics, series
from llmgw.money import written

MARK = "llmgw:usage:mark"
"""What the edges' counters and the sums said when they were first compared: both begin anew with Redis."""
_TRIES, _PAUSE_S = 4, 1.2
_TOKENS = ("prompt", "completion")


@dataclass(frozen=True, slots=True)
class Difference:
    """`expected` is what the rows say; nano-units of money, or a count."""

    check: str
    what: str
    expected: int
    found: int
    sentence: str


@dataclass(slots=True)
class Report:
    first: datetime
    until: datetime
    requests: int = 0
    cost: int = 0
    corrections: int = 0
    checks: dict[str, str] = field(default_factory=dict)
    """What each check looked at, or why it could not."""
    differences: list[Difference] = field(default_factory=list)


def verify(first: datetime, until: datetime, spool: Path) -> Report:
    """The month from `first` to `until`."""
    report = Report(first, until)
    ingest(spool)
    _sums(report)
    _prices(report)
    _again(report, "ledger", lambda: _ledger(report, spool))
    _again(report, "counters", lambda: _counters(report, spool))
    return report


def _sums(report: Report) -> None:
    """A day at a time: what rows and corrections add up to, and what the sums by the hour say."""
    day, grain, compared, cost = report.first, rollups.grain_s(), 0, rollups.SUMS.index("cost")
    while day < report.until:
        end = min(day + timedelta(days=1), report.until)
        wanted = {s.identity: s.figures for s in rollups.from_rows(day, end, grain)}
        columns = (*rollups.NAMES, *rollups.SUMS)
        kept = {row[:7]: row[7:] for row in UsageHour.objects.filter(at__gte=day, at__lt=end).values_list(*columns)}
        if grain != 3600 or wanted.keys() != kept.keys():
            wanted, kept = _by_day(wanted), _by_day(kept)  # buckets of two lengths, from before a zone was set
        for identity in sorted(wanted.keys() | kept.keys()):
            zeros = (0,) * len(rollups.SUMS)
            a, b = wanted.get(identity, zeros), kept.get(identity, zeros)
            compared += 1
            report.requests += a[0]
            report.cost += a[cost]
            for name, expected, found in zip(rollups.SUMS, a, b, strict=True):
                if expected != found:
                    who = " ".join(str(part) for part in identity if part)
                    report.differences.append(
                        Difference("sums", f"{who} {name}", expected, found, "llmgw usage rebuild makes the sums anew")
                    )
        day = end
    found = UsageCorrection.objects.filter(at__gte=report.first, at__lt=report.until)
    report.corrections = int(found.aggregate(n=Sum("delta"))["n"] or 0)
    report.checks["sums"] = f"{compared} sums compared with {report.requests} rows"


def _by_day(sums: dict[Any, Any]) -> dict[Any, tuple[int, ...]]:
    found: dict[Any, tuple[int, ...]] = {}
    for identity, figures in sums.items():
        day = (identity[0].replace(hour=0, minute=0), *identity[1:])
        found[day] = tuple(a + b for a, b in zip(found.get(day, (0,) * len(figures)), figures, strict=True))
    return found


def _prices(report: Report) -> None:
    """What the rows of each model that has a price of its own cost, and what its prices say; corrections count."""
    looked, left = [], []
    for model, prices in sorted(repricing.models().items()):
        if not prices:
            continue
        if not repricing.countable(prices):
            left.append(model)
            continue
        found = repricing.worth(model, prices, report.first, report.until).values()
        entered = UsageCorrection.objects.filter(model=model, at__gte=report.first, at__lt=report.until)
        booked = sum(w.booked for w in found) + int(entered.aggregate(n=Sum("delta"))["n"] or 0)
        priced = sum(w.priced for w in found)
        looked.append(model)
        if booked != priced:
            said = f"the rows cost {written(booked)}, by the prices {written(priced)}: see llmgw ledger reprice"
            report.differences.append(Difference("prices", model, priced, booked, said))
    told = f"{len(looked)} models by their own prices"
    report.checks["prices"] = f"{told}; not {', '.join(left)}: priced by the picture" if left else told


def _ledger(report: Report, spool: Path) -> list[Difference]:
    """Every budget whose period is running: what Redis says was spent, and what the rows say."""
    ingest(spool)
    levels = ledger.budgets(parts.tenancy(time.time()))
    told = ledger.spent(levels)
    found = []
    for level in levels:
        money = told[level.level, level.id]
        if money is None:
            continue
        of_rows = ledger.from_rows(level)
        if of_rows != money.spent:
            off = written(abs(money.spent - of_rows))
            way = "more" if money.spent > of_rows else "less"
            said = f"the ledger says {off} {way} than the rows; {written(money.held)} is held by what is under way"
            found.append(Difference("ledger", f"{level.level} {level.id} {level.period}", of_rows, money.spent, said))
    known = sum(money is not None for money in told.values())
    report.checks["ledger"] = f"{known} budgets, {len(levels) - known} that Redis does not know yet"
    return found


def _counters(report: Report, spool: Path) -> list[Difference]:
    """Tokens since the mark. A killed process takes its last second's counts with it, so that rows may say more; a
    count without its row is a row that was lost."""
    ingest(spool)
    counted, kept = _edges(), _kept()
    data = client().get(MARK)
    mark = msgspec.json.decode(data, type=_Mark) if data is not None else None
    if mark is None or any(counted[kind] < mark.counted[kind] for kind in _TOKENS):
        mark = _Mark(time.time(), counted, kept)
        client().set(MARK, msgspec.json.encode(mark))
        report.checks["counters"] = "the edges' counters are compared from now on"
        return []
    since = datetime.fromtimestamp(mark.at, UTC)
    report.checks["counters"] = f"tokens since {since:%Y-%m-%d %H:%M:%S} UTC"
    found = []
    for kind in _TOKENS:
        edges, rows = counted[kind] - mark.counted[kind], kept[kind] - mark.kept[kind]
        if edges > rows:
            said = f"the edges counted {edges - rows} {kind} tokens that no row has"
            found.append(Difference("counters", f"{kind} tokens", rows, edges, said))
        elif edges < rows:
            report.checks["counters"] += f"; rows have {rows - edges} {kind} tokens more: of processes that were killed"
    return found


class _Mark(msgspec.Struct):
    at: float
    counted: dict[str, int]
    kept: dict[str, int]


def _edges() -> dict[str, int]:
    keys = [key for key in client().scan_iter(f"{metrics.PREFIX}*", count=500) if key.decode() != metrics.FLEET]
    states = [metrics.decode(data) for data in client().mget(keys) if isinstance(data, bytes)] if keys else []
    total = dict.fromkeys(_TOKENS, 0)
    for state in states:
        for name, labels, value in state.counters:
            if name == series.TOKENS.name and labels[1] in total:
                total[labels[1]] += int(value)
    return total


def _kept() -> dict[str, int]:
    found = UsageHour.objects.aggregate(prompt=Sum("prompt_tokens"), completion=Sum("completion_tokens"))
    return {kind: int(found[kind] or 0) for kind in _TOKENS}


def _again(report: Report, check: str, look: Callable[[], list[Difference]]) -> None:
    """What differs is looked at again: requests end meanwhile, and counters are told once a second."""
    found: list[Difference] = []
    for left in range(_TRIES, 0, -1):
        try:
            found = look()
        except redis.RedisError as e:
            report.checks[check] = f"not compared: Redis cannot be asked ({type(e).__name__})"
            return
        if not found or left == 1:
            break
        time.sleep(_PAUSE_S)
    report.differences += found
