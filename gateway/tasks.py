"""Celery's door to the gateway: thin, idempotent; beat comes by every second or two."""

from __future__ import annotations

import logging
from typing import Any

import redis
from celery import shared_task
from celery.signals import worker_ready
from django.conf import settings

from gateway import noticing
from gateway.control import gauges, kept, ledger, publishing, retention
from gateway.control.ingesting import ingest as ship
from llmgw import metrics

log = logging.getLogger(__name__)


@worker_ready.connect
def _push_figures(**_: Any) -> None:
    metrics.push_from_thread("worker", settings.MACHINE.redis_url)


@shared_task(name="gateway.publish")
def publish() -> None:
    try:
        publishing.publish()
        gauges.push(settings.MACHINE.spool_dir)
    except (redis.RedisError, OSError) as e:
        log.warning("the snapshot could not be published: %s", type(e).__name__)


@shared_task(name="gateway.ledger")
def seed_ledger() -> None:
    try:
        ledger.watch(settings.MACHINE.spool_dir)
        noticing.watch_when_due()
    except (redis.RedisError, OSError) as e:
        log.warning("the ledger could not be looked at: %s", type(e).__name__)


@shared_task(name="gateway.tidy")
def tidy() -> None:
    retention.tidy()
    kept.forget(settings.MACHINE.spool_dir)


@shared_task(name="gateway.ingest")
def ingest() -> None:
    ship(settings.MACHINE.spool_dir)
    kept.ship(settings.MACHINE.spool_dir)
