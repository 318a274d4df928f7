"""Leases: one holder, terms that only grow, a fenced holder that finds out."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

import pytest
from django.utils import timezone

from llmgw.cluster import holders, leases
from llmgw.cluster.models import Lease

pytestmark = pytest.mark.django_db


def expire(name: str = "work") -> None:
    Lease.objects.filter(name=name).update(expires_at=timezone.now() - timedelta(seconds=1))


def test_one_holds_it_and_the_other_waits() -> None:
    first = leases.hold("work", "a", 10)
    assert first is not None
    assert leases.hold("work", "b", 10) is None
    assert leases.hold("work", "a", 10) == first
    assert leases.is_held(first)


def test_the_next_holder_has_a_higher_term_and_the_former_is_fenced_off() -> None:
    first = leases.hold("work", "a", 10)
    assert first is not None
    expire()
    second = leases.hold("work", "b", 10)
    assert second is not None
    assert second.term > first.term
    assert not leases.is_held(first)
    assert leases.hold("work", "a", 10) is None


def test_who_slept_through_its_tenure_gets_a_new_term() -> None:
    first = leases.hold("work", "a", 10)
    assert first is not None
    expire()
    again = leases.hold("work", "a", 10)
    assert again is not None
    assert again.term > first.term


def test_a_restored_store_gives_a_higher_term_than_it_ever_did() -> None:
    first = leases.hold("work", "a", 10)
    assert first is not None
    Lease.objects.update(term=3, expires_at=timezone.now() - timedelta(days=1))
    later = leases.hold("work", "b", 10)
    assert later is not None
    assert later.term >= first.term


def test_it_is_renewed_before_it_ends() -> None:
    assert leases.hold("work", "a", 10)
    Lease.objects.update(expires_at=timezone.now() + timedelta(seconds=2))
    assert leases.hold("work", "a", 10)
    assert Lease.objects.get().expires_at > timezone.now() + timedelta(seconds=5)


def test_released_and_taken_and_told() -> None:
    held = leases.take("links:a", "x", 10)
    leases.take("links:b", "y", 10)
    now = timezone.now().timestamp()
    told = {one.name: one for one in leases.tenures("links")}
    assert sorted(told) == ["links:a", "links:b"]
    assert told["links:a"].taken_at == pytest.approx(now, abs=5)
    assert told["links:a"].expires_at == pytest.approx(now + 10, abs=5)
    leases.release(held)
    other = leases.hold("links:a", "z", 10)
    assert other is not None
    assert other.term > held.term
    assert leases.tenures("nothing") == ()


def test_a_tenure_that_nobody_else_has_had_is_extended_however_late() -> None:
    held = leases.take("links:a", "x", 0)
    before = leases.tenures("links")[0]
    until = timezone.now() + timedelta(seconds=60)
    assert leases.extend("links:a", "x", until)
    after = leases.tenures("links")[0]
    assert (after.taken_at, after.expires_at) == (before.taken_at, until.timestamp())
    assert leases.is_held(held)
    assert not leases.extend("links:a", "y", until)


def dead(kind: str = "planner") -> str:
    """The name of a process that has ended."""
    code = f"from llmgw.cluster import holders; print(holders.this_process({kind!r}))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_it_is_taken_at_once_from_who_died_on_this_machine() -> None:
    first = leases.hold("work", dead(), 60)
    assert first is not None
    second = leases.hold("work", "b", 60)
    assert second is not None
    assert second.term > first.term
    assert not leases.is_held(first)


def test_who_lives_or_cannot_be_seen_keeps_it() -> None:
    alive = holders.this_process("planner")
    name = dead()
    here, _, rest = name.partition("/")
    for keeper in (
        alive,
        f"planner@elsewhere/{rest}",
        f"{here}1/{rest}",
        "planner@/1/1/x",
        "planner-0123",
        f"{name}/x",
    ):
        assert not holders.is_dead(keeper), keeper
        Lease.objects.all().delete()
        assert leases.hold("work", keeper, 60)
        assert leases.hold("work", "b", 60) is None
    assert holders.is_dead(name)
    pid, start, random = alive.split("/")[1:]
    assert holders.is_dead(f"{here}/{pid}/{int(start) - 1}/{random}")  # the number is another's today
