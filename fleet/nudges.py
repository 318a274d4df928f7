"""Saying "look now" to whoever would look by itself a moment later: the reconciler and the link. All may be lost."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Iterable

import kombu.exceptions
import redis
from celery import Celery
from django.conf import settings

log = logging.getLogger(__name__)

CHANNEL = "llmgw:link"
"""Redis channel that every link process listens to: {"nudge": [node ids]} or a question (`fleet.questions`)."""


def reconcile() -> None:
    """A pass of the reconciler, soon."""
    try:
        _celery().send_task("fleet.reconcile", expires=5.0, retry=False)
    except (OSError, kombu.exceptions.KombuError, redis.RedisError) as e:  # beat comes by within two seconds
        log.debug("could not nudge the reconciler: %s", e)


def work(task: str, *args: str) -> None:
    """A worker does something that takes its time. Raises `redis.RedisError` when it cannot be told."""
    try:
        _celery().send_task(task, args=args, expires=60.0, retry=False)
    except (OSError, kombu.exceptions.KombuError) as e:
        raise redis.ConnectionError(str(e)) from None


def link(nodes: Iterable[str]) -> None:
    """Their desired state has moved."""
    names = sorted(nodes)
    if not names:
        return
    try:
        client().publish(CHANNEL, json.dumps({"nudge": names}))
    except redis.RedisError as e:  # the link polls generations each second
        log.debug("could not nudge the link: %s", e)


@functools.cache
def client() -> redis.Redis:
    """This process's Redis client; every call is bounded."""
    return redis.Redis.from_url(
        settings.MACHINE.redis_url, socket_connect_timeout=2, socket_timeout=10, decode_responses=False
    )


@functools.cache
def _celery() -> Celery:
    """A sender alone: whoever changes something need not have loaded the worker's application."""
    return Celery(
        "fleet.nudges",
        broker=settings.CELERY_BROKER_URL,
        set_as_current=False,
        broker_transport_options={"socket_connect_timeout": 1, "socket_timeout": 2, "max_retries": 0},
    )
