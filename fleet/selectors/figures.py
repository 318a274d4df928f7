"""What a node's cards do now, for pages and commands: as heartbeats tell it, else as a report that is not old did."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, cast

import redis

from agent.wire.facts import GpuFacts, GpuFigures
from fleet import models, nudges
from llmgw import node_figures

log = logging.getLogger(__name__)
REPORT_S = 60.0
"""A report's figures are unknown when it is older: it is sent again only when something lasting has changed."""
MOVING = tuple(f.name for f in fields(GpuFigures) if f.name != "index")


def of_cards(node: models.Node, gpus: Iterable[GpuFacts], now: datetime) -> dict[int, dict[str, Any]]:
    """By device: what moves of it; None where nobody tells."""
    told = _told(node.node_id, now)
    if told is not None:
        moving = {f.index: f for f in told.gpus}
        return {g.index: {name: getattr(moving.get(g.index), name, None) for name in MOVING} for g in gpus}
    fresh = node.reported_at is not None and (now - node.reported_at).total_seconds() <= REPORT_S
    return {g.index: {name: getattr(g, name) if fresh else None for name in MOVING} for g in gpus}


def _told(node_id: str, now: datetime) -> node_figures.Told | None:
    """None: not heard lately, or it has no cards to tell of, or Redis is away."""
    try:
        raw = nudges.client().hget(node_figures.KEY, node_id)
    except (redis.RedisError, OSError) as e:
        log.debug("what %s does cannot be read: %s", node_id, e)
        return None
    if not isinstance(raw, bytes):
        return None
    found = dict(node_figures.read({node_id.encode(): raw}, now.timestamp())).get(node_id)
    return found if found is not None and found.gpus else None


def of_every(now: float) -> dict[str, dict[int, GpuFigures]]:
    """By node and device, of each node that was heard lately; empty where Redis is away."""
    try:
        raw = cast(dict[bytes, bytes], nudges.client().hgetall(node_figures.KEY))
    except (redis.RedisError, OSError) as e:
        log.debug("what nodes do cannot be read: %s", e)
        return {}
    return {node: {f.index: f for f in told.gpus} for node, told in node_figures.read(raw, now) if told.gpus}


def over(gpu: GpuFacts, told: GpuFigures | None) -> GpuFacts:
    """The device with its figures of now; None: with none, for nobody tells them."""
    moving: dict[str, Any] = {name: getattr(told, name, None) for name in MOVING}
    return replace(gpu, **moving)
