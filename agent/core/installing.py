"""What is installed next, which build is used, and what may go. Pure, and the same at every step.

One thing at a time. Of an engine's candidates the best that was not passed over is wanted; what is there and works is
used until that one is. What could not run on this machine is passed over, and tried again with a pause that doubles;
what only broke off (a server that was away, a full disk) is tried again sooner, and nothing is passed over for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agent.plans.outcome import Candidates, Cannot, Outcome
from agent.plans.steps import Plan
from agent.wire.facts import EngineFacts

AGAIN_S = 600.0
"""Between two looks at what is installed."""
BROKEN_AGAIN_S = 60.0
"""While the last one found something wrong."""
UNUSED_S = 60.0
"""What is no longer wanted stays for this long: a shard may be about to start on it."""
_SOON_S, _SOON_MOST_S = 15.0, 1800.0
_PASSED_S, _PASSED_MOST_S = 600.0, 86400.0


@dataclass(frozen=True, slots=True)
class Installed:
    """`path`: its executable or interpreter. Times are Unix seconds."""

    engine: str
    version: str
    build: str
    path: str
    looked_at: float | None = None
    problem: str | None = None
    unwanted_since: float | None = None

    @property
    def key(self) -> str:
        return key(self.engine, self.version, self.build)


@dataclass(frozen=True, slots=True)
class Tried:
    """Tries of one build that failed in a row. `passed`: this machine cannot run it; `wait_s`: what the other side
    asked for; `under`: the driver that it was tried with, as another one may run it."""

    at: float
    times: int
    sentence: str
    passed: bool = False
    wait_s: float | None = None
    under: str | None = None

    def due(self) -> float:
        first, most = (_PASSED_S, _PASSED_MOST_S) if self.passed else (_SOON_S, _SOON_MOST_S)
        wait_s = min(most, first * 2.0 ** min(self.times - 1, 20))
        return self.at + max(wait_s, self.wait_s or 0.0)


@dataclass(frozen=True, slots=True)
class Install:
    plan: Plan


@dataclass(frozen=True, slots=True)
class Look:
    """At what is installed, by its plan."""

    installed: Installed
    plan: Plan


@dataclass(frozen=True, slots=True)
class Remove:
    installed: Installed


@dataclass(frozen=True, slots=True)
class Wait:
    until: float


Action = Install | Look | Remove | Wait


def key(engine: str, version: str, build: str) -> str:
    return f"{engine} {version} {build}"


def key_of(plan: Plan) -> str:
    return key(plan.engine, plan.version, plan.build)


def wanted(outcome: Outcome, here: Sequence[Installed], tried: Mapping[str, Tried], driver: str | None) -> Plan | None:
    """The build to have: the best that is there or was not passed over; where all were, the one to try again first."""
    if not isinstance(outcome, Candidates):
        return None
    there = {i.key for i in here}
    for plan in outcome.plans:
        before = tried.get(key_of(plan))
        if key_of(plan) in there or before is None or not before.passed or _another(before, driver):
            return plan
    return min(outcome.plans, key=lambda p: tried[key_of(p)].due())


def used(outcome: Outcome, here: Sequence[Installed], plan: Plan | None) -> Installed | None:
    """What starts the engine now: the wanted build, else another candidate, else what was used before; what works
    before what does not."""
    if plan is None or not isinstance(outcome, Candidates):
        return None
    order = {key_of(p): i for i, p in enumerate(outcome.plans, 1)} | {key_of(plan): 0}
    mine = [i for i in here if i.engine == plan.engine]
    return min(
        mine, key=lambda i: (i.problem is not None, order.get(i.key, len(outcome.plans) + 1), i.version), default=None
    )


def step(
    outcomes: Mapping[str, Outcome], here: Sequence[Installed], tried: Mapping[str, Tried], now: float,
    driver: str | None = None,
) -> Action:  # fmt: skip
    """The next thing to do. Engines that `outcomes` does not name are nobody's to change."""
    waits = [now + AGAIN_S]
    keep: set[str] = set()
    for engine, outcome in outcomes.items():
        plan = wanted(outcome, here, tried, driver)
        if plan is None:
            continue
        use = used(outcome, here, plan)
        keep |= {key_of(plan)} | ({use.key} if use is not None else set())
        if not any(i.key == key_of(plan) for i in here if i.engine == engine):
            before = tried.get(key_of(plan))
            due = now if before is None or _another(before, driver) else before.due()
            if due <= now:
                return Install(plan)
            waits.append(due)
    for one in here:
        plan = _plan_of(outcomes.get(one.engine), one)
        if plan is None or one.key not in keep:
            continue
        due = 0.0 if one.looked_at is None else one.looked_at + (BROKEN_AGAIN_S if one.problem else AGAIN_S)
        if due <= now:
            return Look(one, plan)
        waits.append(due)
    for one in here:
        if one.engine not in outcomes or one.key in keep:
            continue
        due = (now if one.unwanted_since is None else one.unwanted_since) + UNUSED_S
        if due <= now:
            return Remove(one)
        waits.append(due)
    return Wait(min(waits))


def unwanted(
    outcomes: Mapping[str, Outcome], here: Sequence[Installed], tried: Mapping[str, Tried], now: float,
    driver: str | None = None,
) -> tuple[Installed, ...]:  # fmt: skip
    """`here` with the time since when each is no longer wanted."""
    keep: set[str] = set()
    for outcome in outcomes.values():
        plan = wanted(outcome, here, tried, driver)
        use = used(outcome, here, plan)
        keep |= {use.key} if use is not None else set()
        keep |= {key_of(plan)} if plan is not None else set()
    return tuple(
        replace(i, unwanted_since=None)
        if i.key in keep or i.engine not in outcomes
        else replace(i, unwanted_since=now if i.unwanted_since is None else i.unwanted_since)
        for i in here
    )


def told(
    engine: str,
    outcome: Outcome,
    here: Sequence[Installed],
    tried: Mapping[str, Tried],
    doing: tuple[Plan, str] | None,
    driver: str | None = None,
) -> EngineFacts | None:
    """One engine, as the node tells it. `doing`: the installation that runs now, and its words."""
    if isinstance(outcome, Cannot):
        advice = f" ({outcome.reason.command})" if outcome.reason.command else ""
        return EngineFacts(engine, problem=f"{outcome.reason.sentence}{advice}")
    plan = wanted(outcome, here, tried, driver)
    if plan is None:
        return None
    words = doing[1] if doing is not None and doing[0].engine == engine else None
    use = used(outcome, here, plan)
    if use is not None:
        return EngineFacts(engine, use.version, use.build, use.path, problem=use.problem, installing=words)
    if words is not None:
        return EngineFacts(engine, plan.version, plan.build, problem=f"installing: {words}", installing=words)
    failed = [tried[key_of(p)] for p in _plans(outcome) if key_of(p) in tried]
    if not failed:
        return EngineFacts(engine, plan.version, plan.build, problem="installing: it is about to begin", installing="")
    # The best build's failure is the one to mend; the others were only tried in its place.
    return EngineFacts(engine, plan.version, plan.build, problem=failed[0].sentence)


def _plans(outcome: Outcome) -> tuple[Plan, ...]:
    return outcome.plans if isinstance(outcome, Candidates) else ()


def _plan_of(outcome: Outcome | None, one: Installed) -> Plan | None:
    return next((p for p in _plans(outcome) if key_of(p) == one.key), None) if outcome is not None else None


def _another(tried: Tried, driver: str | None) -> bool:
    return tried.passed and tried.under != driver
