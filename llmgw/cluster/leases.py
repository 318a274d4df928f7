"""Who may act now: one holder at a time, each tenure with a term that only grows.

A holder that slept through its tenure finds out when it commits: whoever applies its work asks `is_held` in the
same transaction. Terms follow the clock, so that a restored store still hands out a higher one than it ever did.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.utils import timezone

from llmgw.cluster import holders
from llmgw.cluster.models import Lease


@dataclass(frozen=True, slots=True)
class Held:
    """A lease that is ours: `term` is the fencing token."""

    name: str
    holder: str
    term: int


@dataclass(frozen=True, slots=True)
class Tenure:
    """What a lease's row says: when its holder took it, and until when it stands, in Unix seconds."""

    name: str
    taken_at: float
    expires_at: float


def hold(name: str, holder: str, ttl_s: float) -> Held | None:
    """Take, keep or renew the lease; None while somebody else has it. Renews in the second half of its life only.
    From a holder that has died on this machine (see `holders`) it is taken at once."""
    now = timezone.now()
    row = Lease.objects.filter(name=name).first()
    if row is not None and row.holder == holder and row.expires_at - now > timedelta(seconds=ttl_s / 2):
        return Held(name, holder, row.term)
    if row is not None and row.holder != holder and row.expires_at > now and not holders.is_dead(row.holder):
        return None
    expires_at = now + timedelta(seconds=ttl_s)
    if row is None:
        try:
            with transaction.atomic():
                term = int(now.timestamp())
                Lease.objects.create(name=name, holder=holder, term=term, taken_at=now, expires_at=expires_at)
        except IntegrityError:  # somebody was first
            return None
        return Held(name, holder, term)
    kept = row.holder == holder and row.expires_at > now
    term = row.term if kept else max(row.term + 1, int(now.timestamp()))
    changed = Lease.objects.filter(name=name, holder=row.holder, term=row.term).update(
        holder=holder, term=term, expires_at=expires_at, taken_at=row.taken_at if kept else now
    )
    return Held(name, holder, term) if changed else None


def take(name: str, holder: str, ttl_s: float) -> Held:
    """Take the lease from whoever has it: for a holder that something else already proves to be the only one, as a
    bound port does."""
    now = timezone.now()
    with transaction.atomic():
        row = Lease.objects.select_for_update().filter(name=name).first()
        term = max((row.term if row else 0) + 1, int(now.timestamp()))
        values = {"holder": holder, "term": term, "taken_at": now, "expires_at": now + timedelta(seconds=ttl_s)}
        Lease.objects.update_or_create(name=name, defaults=values)
    return Held(name, holder, term)


def extend(name: str, holder: str, until: datetime) -> bool:
    """Lets a tenure that nobody else has had meanwhile stand until then, however late: its beginning and its term stay.
    False: it is not `holder`'s any more."""
    return bool(Lease.objects.filter(name=name, holder=holder).update(expires_at=until))


def is_held(held: Held) -> bool:
    """Whether the tenure still stands; asked inside the transaction that acts on it."""
    rows = Lease.objects.select_for_update().filter(name=held.name, holder=held.holder, term=held.term)
    return rows.filter(expires_at__gt=timezone.now()).exists()


def release(held: Held) -> None:
    """Give it back early; its row and term stay."""
    Lease.objects.filter(name=held.name, holder=held.holder, term=held.term).update(expires_at=timezone.now())


def term(name: str) -> int:
    """The newest term, whoever has it; 0 before the first."""
    row = Lease.objects.filter(name=name).values_list("term", flat=True).first()
    return row or 0


def tenures(prefix: str) -> tuple[Tenure, ...]:
    """The leases `prefix:…`, those that are over too."""
    rows = Lease.objects.filter(name__startswith=f"{prefix}:").values_list("name", "taken_at", "expires_at")
    return tuple(Tenure(name, taken.timestamp(), expires.timestamp()) for name, taken, expires in rows)
