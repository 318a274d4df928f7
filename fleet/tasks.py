"""Celery's door to the fleet: thin, idempotent, and a nudge only."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from celery.signals import worker_ready

from fleet import listening, passes


@worker_ready.connect
def _listen(**_: Any) -> None:
    listening.start()


@shared_task(name="fleet.reconcile")
def reconcile() -> None:
    passes.run()
