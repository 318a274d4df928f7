"""What is installed next, which build is used, what goes: by values alone."""

from __future__ import annotations

from dataclasses import replace

from agent.core.installing import (
    AGAIN_S,
    BROKEN_AGAIN_S,
    UNUSED_S,
    Install,
    Installed,
    Look,
    Remove,
    Tried,
    Wait,
    key_of,
    step,
    told,
    unwanted,
)
from agent.plans.outcome import Candidates, Cannot, Nothing
from agent.plans.steps import Plan
from agent.wire.reason import Reason

NOW = 1_000_000.0


def plan(build: str, version: str = "1", engine: str = "e") -> Plan:
    return Plan(engine, version, build, "run", (), (), 0)


def there(of: Plan, **changes: object) -> Installed:
    one = Installed(of.engine, of.version, of.build, f"/engines/{of.name}/run", looked_at=NOW)
    return replace(one, **changes)  # type: ignore[arg-type]


GOOD, NEXT, LAST = plan("a"), plan("b"), plan("c")
WANTED = {"e": Candidates((GOOD, NEXT, LAST))}


def failed(of: Plan, *, passed: bool, times: int = 1, at: float = NOW, **more: object) -> dict[str, Tried]:
    return {key_of(of): Tried(at, times, f"{of.build} cannot", passed, under="580", **more)}  # type: ignore[arg-type]


def test_the_best_is_installed_first_and_then_nothing_is_done() -> None:
    assert step(WANTED, (), {}, NOW) == Install(GOOD)
    assert step(WANTED, (there(GOOD),), {}, NOW) == Wait(NOW + AGAIN_S)


def test_one_that_cannot_run_here_is_passed_over_and_not_tried_again_beside_one_that_can() -> None:
    tried = failed(GOOD, passed=True)
    assert step(WANTED, (), tried, NOW, "580") == Install(NEXT)
    assert step(WANTED, (there(NEXT),), tried, NOW + 10**6, "580") == Look(there(NEXT), NEXT)
    assert step(WANTED, (there(NEXT, looked_at=NOW + 10**6),), tried, NOW + 10**6, "580") == Wait(NOW + 10**6 + AGAIN_S)


def test_another_driver_may_run_what_the_old_one_could_not() -> None:
    assert step(WANTED, (there(NEXT),), failed(GOOD, passed=True), NOW, "590") == Install(GOOD)


def test_what_broke_off_is_tried_again_with_longer_pauses_and_nothing_is_passed_over_for_it() -> None:
    tried = failed(GOOD, passed=False)
    assert step(WANTED, (), tried, NOW + 1, "580") == Wait(NOW + 15)
    assert step(WANTED, (), tried, NOW + 15, "580") == Install(GOOD)
    assert step(WANTED, (), failed(GOOD, passed=False, times=3), NOW + 59, "580") == Wait(NOW + 60)
    assert step(WANTED, (), failed(GOOD, passed=False, times=30), NOW, "580") == Wait(NOW + AGAIN_S)
    assert step(WANTED, (), failed(GOOD, passed=False, wait_s=3000.0), NOW + 2999, "580") == Wait(NOW + 3000)


def test_where_all_are_passed_over_the_first_that_is_due_is_tried_again() -> None:
    tried = {**failed(GOOD, passed=True, times=3), **failed(NEXT, passed=True), **failed(LAST, passed=True, times=2)}
    assert step(WANTED, (), tried, NOW + 599, "580") == Wait(NOW + 600)
    assert step(WANTED, (), tried, NOW + 600, "580") == Install(NEXT)
    found = told("e", WANTED["e"], (), tried, None, "580")
    assert found is not None
    assert found.problem == "a cannot"  # the best one's failure is the one to mend


def test_looks_come_every_ten_minutes_and_every_minute_while_something_is_wrong() -> None:
    assert step(WANTED, (there(GOOD, looked_at=None),), {}, NOW) == Look(there(GOOD, looked_at=None), GOOD)
    assert step(WANTED, (there(GOOD),), {}, NOW + AGAIN_S) == Look(there(GOOD), GOOD)
    broken = there(GOOD, problem="libgomp.so.1 is gone")
    assert step(WANTED, (broken,), {}, NOW + BROKEN_AGAIN_S) == Look(broken, GOOD)
    assert told("e", WANTED["e"], (broken,), {}, None).problem == "libgomp.so.1 is gone"  # type: ignore[union-attr]


def test_an_old_version_serves_until_the_new_one_is_there_and_goes_a_minute_later() -> None:
    old, new = plan("a", "1"), plan("a", "2")
    wanted = {"e": Candidates((new,))}
    assert step(wanted, (there(old),), {}, NOW) == Install(new)
    found = told("e", wanted["e"], (there(old),), {}, (new, "downloading, 40 %"))
    assert found is not None
    assert (found.version, found.problem, found.installing) == ("1", None, "downloading, 40 %")
    (kept,) = unwanted(wanted, (there(old),), {}, NOW)
    assert kept.unwanted_since is None
    both = unwanted(wanted, (there(old), there(new)), {}, NOW)
    assert [i.unwanted_since for i in both] == [NOW, None]
    assert step(wanted, both, {}, NOW + UNUSED_S - 1) == Wait(NOW + UNUSED_S)
    assert step(wanted, both, {}, NOW + UNUSED_S) == Remove(both[0])
    assert told("e", wanted["e"], both, {}, None).version == "2"  # type: ignore[union-attr]


def test_what_is_not_wanted_goes_and_what_nobody_named_stays() -> None:
    none = {"e": Nothing()}
    (marked,) = unwanted(none, (there(GOOD),), {}, NOW)
    assert step(none, (marked,), {}, NOW + UNUSED_S) == Remove(marked)
    assert told("e", none["e"], (marked,), {}, None) is None
    assert step({}, (there(GOOD),), {}, NOW + 10**6) == Wait(NOW + 10**6 + AGAIN_S)


def test_a_node_tells_in_its_own_words_what_it_does() -> None:
    found = told("e", WANTED["e"], (), {}, (GOOD, "downloading x.tar.gz (16 MB), 40 %"))
    assert found is not None
    assert found.problem == "installing: downloading x.tar.gz (16 MB), 40 %"
    assert found.path is None
    cannot = told("e", Cannot(Reason("old", "the driver is too old", "install a newer one")), (), {}, None)
    assert cannot is not None
    assert cannot.problem == "the driver is too old (install a newer one)"


def test_one_engine_that_waits_does_not_keep_another_from_its_turn() -> None:
    other = plan("x", engine="f")
    wanted = {**WANTED, "f": Candidates((other,))}
    assert step(wanted, (), failed(GOOD, passed=False), NOW, "580") == Install(other)
