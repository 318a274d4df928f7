"""Celery's door to the portal's long work: thin, and begun once."""

from __future__ import annotations

from celery import shared_task

from llmgw.portal import whatif


@shared_task(name="portal.whatif", acks_late=False)
def try_change(run: str) -> None:
    """Minutes; one whose worker ends in its midst is shown as lost, and nobody begins it again."""
    whatif.carry_out(run)
