"""Corrections of money: new entries, never a change of what was written."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from gateway.control import ledger, repricing, retention, rollups
from gateway.control.rollups import Identity, Sums
from gateway.models import UsageCorrection
from llmgw.cluster.actions import audit
from llmgw.cluster.errors import Invalid, NotFound


@dataclass(frozen=True, slots=True)
class Repriced:
    """`delta` in nano-units; `corrections` is how many entries it took, 0 where all was right."""

    model: str
    since: datetime
    until: datetime
    requests: int
    delta: int
    corrections: int


def reprice(*, model: str, since: datetime, until: datetime, reason: str, actor: str) -> Repriced:
    """What `model` answered in the whole hours from `since` to `until` costs what its prices say now; the difference
    is entered, so that a second time enters nothing. Raises a refusal."""
    prices = repricing.models().get(model)
    if not prices:
        raise NotFound("no_price", f"there is no model {model} with a price of its own", "llmgw price")
    if not repricing.countable(prices):
        raise Invalid("price_per_picture", f"{model} has a price per picture or mesh, and rows do not count these")
    grain, now = rollups.grain_s(), timezone.now()
    since, until = rollups.bucket(since, grain), _bucket_end(min(until, now), grain)
    if since < retention.oldest(now):
        raise Invalid("rows_are_gone", f"rows from before {retention.oldest(now):%Y-%m-%d} are not kept")
    if not since < until:
        raise Invalid("bad_moment", "there is no time between the two moments")
    with transaction.atomic():
        rollups.lock()
        found = repricing.worth(model, prices, since, until)
        before = _before(model, since, until)
        deltas = {i: w.priced - w.booked - before.get(i, 0) for i, w in found.items()}
        made = [_entry(i, found[i].requests, delta, reason, actor) for i, delta in sorted(deltas.items()) if delta]
        UsageCorrection.objects.bulk_create(made, batch_size=500)
        rollups.add([_only_cost(i, delta) for i, delta in sorted(deltas.items()) if delta])
        done = Repriced(model, since, until, sum(e.requests for e in made), sum(e.delta for e in made), len(made))
        audit.record(
            actor=actor,
            action="usage.reprice",
            subject=model,
            since=since.isoformat(),
            until=until.isoformat(),
            reason=reason,
            delta=done.delta,
        )
        transaction.on_commit(lambda: ledger.corrected({i: d for i, d in deltas.items() if d}))
    return done


def _bucket_end(at: datetime, grain: int) -> datetime:
    begins = rollups.bucket(at, grain)
    return begins if begins == at else begins + timedelta(seconds=grain)


def _before(model: str, since: datetime, until: datetime) -> Counter[Identity]:
    """What earlier corrections have entered already."""
    rows = UsageCorrection.objects.filter(model=model, at__gte=since, at__lt=until).order_by()
    return Counter({tuple(r[:7]): int(r[7]) for r in rows.values_list(*rollups.NAMES).annotate(s=Sum("delta"))})


def _entry(identity: Identity, requests: int, delta: int, reason: str, actor: str) -> UsageCorrection:
    who = dict(zip(rollups.NAMES, identity, strict=True))
    return UsageCorrection(**who, requests=requests, delta=delta, reason=reason[:300], actor=actor[:200])


def _only_cost(identity: Identity, delta: int) -> Sums:
    return Sums(identity, tuple(delta if name == "cost" else 0 for name in rollups.SUMS))
