"""Celery's door to the fleet: thin, idempotent, and a nudge only."""

from __future__ import annotations

from celery import shared_task

from fleet import passes


@shared_task(name="fleet.reconcile")
def reconcile() -> None:
    passes.run()
