"""The Celery application: workers and beat load their tasks and schedules from here."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "llmgw.settings")

app = Celery("llmgw")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

# Each pass is idempotent and short; a missed one costs its period. Messages expire, so none pile up.
app.conf.beat_schedule = {
    name: {"task": name, "schedule": seconds, "options": {"expires": max(seconds, 2.0)}}
    for name, seconds in {
        "fleet.reconcile": 2.0,
        "gateway.publish": 2.0,
        "gateway.ingest": 1.0,
        "gateway.ledger": 2.0,
        "gateway.tidy": 300.0,
        "cluster.notify": 2.0,
    }.items()
}
