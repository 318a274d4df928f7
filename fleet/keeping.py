"""What the leader forgets now and then: replicas' histories, audit entries and notices that are old enough."""

from __future__ import annotations

import logging
import time

from django.utils import timezone

from fleet.actions import asking
from fleet.models import ReplicaEvent
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.actions.keeping import forget_older
from llmgw.cluster.models import AuditEntry, Notice

log = logging.getLogger(__name__)

EVERY_S = 600.0
_last = time.monotonic()


def tidy_when_due() -> None:
    """Every ten minutes, not at a start: whoever starts has better things to do."""
    global _last
    if time.monotonic() - _last >= EVERY_S:
        _last = time.monotonic()
        tidy()


def tidy() -> int:
    """How many rows went."""
    keep, now = cluster_settings.in_force().keep, timezone.now()
    gone = forget_older(ReplicaEvent.objects, keep.events_days, now)
    gone += forget_older(AuditEntry.objects, keep.audit_days, now)
    gone += forget_older(Notice.objects.exclude(over_at=None), keep.events_days, now)
    asking.tidy(now)
    if gone:
        log.info("%d old entries of the histories were forgotten", gone)
    return gone
