"""Celery's door to what the whole cluster shares: thin and idempotent."""

from __future__ import annotations

from celery import shared_task

from llmgw.cluster import notifying


@shared_task(name="cluster.notify")
def notify() -> None:
    notifying.run()
