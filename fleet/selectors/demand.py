"""Who asks for what: the gateways' words of the last seconds over what was written down."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any, cast

import msgspec
import redis

from fleet import models, nudges
from fleet.core import demand as core
from fleet.core.world import Demand
from llmgw import demand as words

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Told:
    """See `fleet.core.world.World`."""

    demand: dict[str, Demand]
    heard: bool
    quiet: frozenset[str]
    busy: frozenset[str]


def read(now: float) -> Told:
    """When somebody last asked is kept without Redis too."""
    told = _words()
    last = {model: at.timestamp() for model, at in models.LastAsked.objects.values_list("model", "at")}
    found = {model: Demand(last_asked=at) for model, at in last.items()}
    for model, said in _together(told).items():
        asked = now - said.asked_s if said.asked_s is not None else None
        found[model] = Demand(
            waiting=said.waiting,
            in_flight=said.in_flight,
            waiting_since=now - said.unserved_s if said.unserved_s is not None else None,
            last_asked=max((at for at in (asked, last.get(model)) if at is not None), default=None),
        )
    return Told(found, bool(told), _quiet(told), _busy(told))


def expected(now: float, zone: tzinfo) -> frozenset[str]:
    """The models that were asked for at this hour in most of the weeks before."""
    hours = {hour for found in core.hours_before(now, zone).values() for hour in found}
    rows = models.AskedHour.objects.filter(hour__in=[datetime.fromtimestamp(hour, UTC) for hour in hours])
    return core.expected(((m, hour.timestamp()) for m, hour in rows.values_list("model", "hour")), now, zone)


def _words() -> list[words.Word]:
    """Of the edges that are alive; none where Redis is away."""
    try:
        edges = cast(list[bytes], nudges.client().hkeys(words.EDGES))
        found = cast(list[Any], nudges.client().mget([words.KEY.encode() + e for e in edges])) if edges else []
    except (redis.RedisError, OSError) as e:
        log.debug("demand could not be read: %s", e)
        return []
    told = []
    for data in found:
        if data is not None:
            try:
                told.append(words.decode(data))
            except msgspec.MsgspecError:  # another version's
                continue
    return told


def _quiet(told: list[words.Word]) -> frozenset[str]:
    """Replicas that every edge knows to take no more, and that answer nobody's request."""
    sets = [{replica for replica, in_flight in word.leaving.items() if not in_flight} for word in told]
    return frozenset(set.intersection(*sets)) if sets else frozenset()


def _busy(told: list[words.Word]) -> frozenset[str]:
    """Replicas that take no more and still answer somebody."""
    return frozenset(replica for word in told for replica, in_flight in word.leaving.items() if in_flight)


def _together(told: list[words.Word]) -> dict[str, words.Asked]:
    found: dict[str, words.Asked] = {}
    for word in told:
        for model, said in word.models.items():
            found[model] = words.add(found[model], said) if model in found else said
    return found
