"""Which replica gets a request: filters drop, scorers add, one choice with its reason. Pure.

A scorer tells the seconds until the first token that each replica costs, divided by its weight; the least wins.
Replicas within a tenth of the best are equals: of these the one that has read most of the text is taken, then the one
whose turn it is. A rule is one function and one line in `MUST`, `RATHER` or `SCORERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import ceil
from typing import Generic, TypeVar

import msgspec

from agent.wire.reason import Reason
from gateway.core.breaker import CLOSED
from gateway.core.load import Load
from gateway.core.predict import LEAST_BYTES, RATE, SERVICE_S
from gateway.core.prefix import NOTHING, Prefixes, Text
from gateway.core.sessions import draw
from gateway.core.value import Value

L = TypeVar("L", bound=Load)
Scorer = Callable[[Sequence[Load], Sequence[int], "Work"], list[float]]
PREDICTED, LEAST_LOAD, ROUND_ROBIN, PREFIX = "predicted", "least_load", "round_robin", "prefix"
EQUAL = 1.1
"""Costs up to this ratio are equal."""
WORTH = 0.125
"""Share of a text that must be cached for it to decide between equals, or against a session's home."""
MATCH = 0.3
"""Share of a text from which the policy `prefix` follows it."""
GUARD = 1.5
"""A replica that is full and busier than this, relative to all, is too busy to be followed to."""
CROWD = 3.0
"""How much a second of reading costs the others when every place is taken."""
_FULL_S = 0.02
"""What a replica that is full but for no queue costs: a batch makes each of its members slower."""


class Ask(Value, frozen=True):
    """`tried`: replicas that failed this request already. `session`: its seed, None without one. `now` is monotonic."""

    now: float
    tried: Collection[str] = ()
    text: Text = NOTHING
    session: int | None = None
    policy: str = PREDICTED


class Choice(msgspec.Struct, Generic[L]):
    load: L
    reason: Reason
    matched: int = 0
    """Bytes of the text that it should have in its cache."""


class Work(msgspec.Struct):
    """One request: `size` of its text in bytes; `rate` and `service_s` for replicas whose own are not known yet.
    `crowd`: requests at all replicas relative to their places."""

    size: int
    rate: float = RATE
    service_s: float = SERVICE_S
    crowd: float = 0.0
    now: float = 0.0


# -- filters


def not_draining(load: Load, ask: Ask) -> bool:
    return not load.draining


def not_resting(load: Load, ask: Ask) -> bool:
    return ask.now >= load.resting_until


def not_tried(load: Load, ask: Ask) -> bool:
    return load.name not in ask.tried


def not_broken(load: Load, ask: Ask) -> bool:
    return load.breaker is CLOSED or load.breaker.allows(ask.now)


def _draining(loads: Sequence[Load], ask: Ask) -> Reason:
    return _DRAINING if loads else _NONE


def _resting(loads: Sequence[Load], ask: Ask) -> Reason:
    wait = ceil(rest_s(loads, ask.now))
    return Reason(ALL_BUSY, f"every replica of this model asked for a pause, the shortest ends in {wait} s")


MUST: tuple[tuple[Callable[[Load, Ask], bool], Callable[[Sequence[Load], Ask], Reason]], ...] = (
    (not_draining, _draining),
    (not_resting, _resting),
)
"""Dropped whatever is left; beside each what is said when nothing is."""
RATHER: tuple[Callable[[Load, Ask], bool], ...] = (not_tried, not_broken)
"""Dropped only while others are left: one that failed a moment ago is better than none."""


# -- scorers: of replicas that should have that many bytes of the text (`matches`), in seconds


def predicted(loads: Sequence[Load], matches: Sequence[int], work: Work) -> list[float]:
    """Until the first token, as a sum of three waits. In the queue: until one of its places is free, and a little for
    each that is taken. Reading: prompts that it has yet to read, and what it does not know of this one; the latter also
    delays those who come after, the more so, the busier all are, and so affinity is worth most under load. And
    pressure: a KV cache that is nearly full lets requests wait or throws others out."""
    size, usual, delays, costs = work.size, work.rate, 1.0 + CROWD * work.crowd, []
    for load, matched in zip(loads, matches, strict=True):
        pace, there = load.pace, load.in_flight + load.others
        rate = usual if pace.rate is None else pace.rate_at(work.now, usual)
        cost = (load.unread + (size - matched * pace.trust) * delays) / rate
        if there:
            parallel = load.parallel
            cost += _FULL_S * there / parallel
            if there >= parallel:
                cost += (there - parallel + 1) / parallel * (pace.service_s or work.service_s)
        if load.pressure:
            cost += _pressure(load, work)
        costs.append(cost / load.weight)
    return costs


def least_load(loads: Sequence[Load], matches: Sequence[int], work: Work) -> list[float]:
    """Requests there relative to what it can carry; 0 when idle."""
    costs = []
    for load in loads:
        there = load.in_flight + load.others
        cost = there / load.parallel * (load.pace.service_s or work.service_s)
        costs.append((cost + _pressure(load, work)) / load.weight)
    return costs


def nothing(loads: Sequence[Load], matches: Sequence[int], work: Work) -> list[float]:
    return [0.0] * len(loads)


def _pressure(load: Load, work: Work) -> float:
    return load.pressure and load.pressure * (load.pace.service_s or work.service_s)


SCORERS: dict[str, Scorer] = {
    PREDICTED: predicted,
    LEAST_LOAD: least_load,
    PREFIX: least_load,
    ROUND_ROBIN: nothing,
}
"""By policy. `prefix` follows the cached text while the replica is not too busy, and scores for the rest."""
BLIND = (LEAST_LOAD, ROUND_ROBIN)
"""Policies to which texts mean nothing."""


# -- the choice


def choose(loads: Sequence[L], ask: Ask, tree: Prefixes | None = None) -> Choice[L] | Reason:
    """The replica and why, or why there is none."""
    now, tried = ask.now, ask.tried
    for load in loads:
        if load.draining or load.resting_until > now or load.breaker is not CLOSED or (tried and load.name in tried):
            return _choose_among(loads, ask, tree)
    return _best(loads, len(loads), ask, tree) if loads else _NONE


def _choose_among(loads: Sequence[L], ask: Ask, tree: Prefixes | None) -> Choice[L] | Reason:
    """The same where some must be dropped."""
    left = list(loads)
    for must, refusal in MUST:
        before, left = left, [x for x in left if must(x, ask)]
        if not left:
            return refusal(before, ask)
    known = len(left)
    for keep in RATHER:
        left = [x for x in left if keep(x, ask)] or left
    return _best(left, known, ask, tree)


def _best(left: Sequence[L], known: int, ask: Ask, tree: Prefixes | None) -> Choice[L]:
    text, size = ask.text, ask.text.size
    if ask.policy in BLIND:
        tree = None
    matches = tree.match(text, [x.bit for x in left]) if tree is not None and text.names else [0] * len(left)
    if len(left) == 1:
        return Choice(left[0], _only(known), matches[0])
    work, score = _work(left, size, ask.now), SCORERS.get(ask.policy) or predicted
    counted = _counted(matches, work.rate)
    if ask.policy == PREFIX and size:
        most = max(range(len(left)), key=lambda i: (counted[i], -left[i].turns))
        if counted[most] >= MATCH * size and not too_busy(left[most], left):
            return Choice(left[most], _said("cached", len(left), known, matches[most] / size), matches[most])
    costs = score(left, counted, work)
    least = min(costs)
    bound, worth = least * EQUAL, WORTH * size
    at, most_matched = -1, 0
    for i, cost in enumerate(costs):
        if cost <= bound:
            matched = counted[i] if counted[i] > worth else 0
            if at < 0 or matched > most_matched or (matched == most_matched and left[i].turns < left[at].turns):
                at, most_matched = i, matched
    if ask.session is not None and ask.policy != ROUND_ROBIN:
        home = _home(left, ask.session)
        if home >= 0 and counted[at] - counted[home] <= worth:
            return Choice(left[home], _said("session", len(left), known), matches[home])
    if ask.policy == ROUND_ROBIN:
        return Choice(left[at], _said("turn", len(left), known), matches[at])
    if ask.policy == PREDICTED and most_matched:
        return Choice(left[at], _said("cached", len(left), known, most_matched / size), matches[at])
    return Choice(left[at], _least(left[at], left, known), matches[at])


def _counted(matches: list[int], rate: float) -> list[int]:
    """Of what is known of a text, that which is worth following: a few words, or the opening that all texts of a
    client share, are read in no time, and would gather everything on one replica until its places are full. A model
    that reads slowly (`rate`, bytes a second) is followed for less."""
    least = LEAST_BYTES * min(1.0, rate / RATE)
    return [x if x >= least else 0 for x in matches]


def too_busy(load: Load, among: Sequence[Load]) -> bool:
    """The guard of affinity: it has no place free, and more to do than its share and a half."""
    there = load.in_flight + load.others
    if there < load.parallel and load.pressure < 1.0:
        return False
    total = sum(x.in_flight + x.others for x in among)
    share = load.parallel * load.weight / sum(x.parallel * x.weight for x in among)
    return there + 1 > GUARD * (total + 1) * share


def _home(left: Sequence[L], session: int) -> int:
    """The session's replica: the first in its own order that is not too busy; -1 when all are."""
    order = sorted(range(len(left)), key=lambda i: draw(session, left[i].seed, left[i].weight), reverse=True)
    for i in order:
        if not too_busy(left[i], left):
            return i
    return -1


def _work(left: Sequence[Load], size: int, now: float) -> Work:
    """For a replica that was not measured yet, the mean of those that were."""
    rates = services = 0.0
    measured = served = there = places = 0
    for load in left:
        there += load.in_flight + load.others
        places += load.parallel
        pace = load.pace
        if pace.rate is not None:
            rates += pace.rate
            measured += 1
        if pace.service_s is not None:
            services += pace.service_s
            served += 1
    rate = rates / measured if measured else RATE
    return Work(size, rate, services / served if served else SERVICE_S, there / places, now)


def rest_s(loads: Sequence[Load], now: float) -> float:
    """Until the first of `loads` may be asked again; 0 when one may."""
    return max(0.0, min((x.resting_until - now for x in loads if not x.draining), default=0.0))


# -- the words


def _said(kind: str, left: int, known: int, share: float = 0.0) -> Reason:
    """Made once for each sentence there can be."""
    percent = int(share * 20 + 0.5) * 5 if share else 0
    key = (kind, left, known, percent)
    found = _reasons.get(key)
    if found is None:
        rest = f", {known - left} avoided" if known > left else ""
        sentence = _SENTENCES[kind].format(left=left, known=known, percent=percent) + rest
        found = _reasons[key] = Reason(kind, sentence)
    return found


_SENTENCES = {
    "least_load": "the least busy of {left} replicas",
    "soonest": "the soonest first token of {left} replicas, going by what was measured",
    "cached": "the soonest first token of {left} replicas: about {percent} % of the prompt is cached there",
    "session": "the session's own of {left} replicas",
    "turn": "the next in turn of {left} replicas",
}
_reasons: dict[tuple[str, int, int, int], Reason] = {}
ALL_BUSY = "all_busy"
_NONE = Reason("no_replica", "no replica of this model is ready")
_DRAINING = Reason("all_draining", "every replica of this model is being drained")
_ONLY = Reason("only_replica", "the only replica")


def _only(known: int) -> Reason:
    if known == 1:
        return _ONLY
    return Reason("only_left", f"the only one of {known} replicas that has not failed")


def _least(load: Load, left: Sequence[Load], known: int) -> Reason:
    """Whether it is the least busy, or is expected to be the soonest although it is not."""
    here = load.in_flight + load.others
    if here and load.pace.service_s is not None:
        share = here / (load.parallel * load.weight)
        for other in left:
            if (other.in_flight + other.others) / (other.parallel * other.weight) < share:
                return _said("soonest", len(left), known)
    return _said("least_load", len(left), known)
