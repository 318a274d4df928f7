"""Celery's door to the fleet: thin, idempotent, and a nudge only."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from celery.signals import worker_ready

from fleet import benches, listening, passes


@worker_ready.connect
def _listen(**_: Any) -> None:
    listening.start()


@shared_task(name="fleet.reconcile")
def reconcile() -> None:
    passes.run()


@shared_task(name="fleet.bench", acks_late=False)
def bench(model: str, run: str) -> None:
    """Minutes; a worker that ends in its midst leaves it as lost, and nobody begins it again."""
    benches.carry_out(model, run)
