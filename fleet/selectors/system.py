"""Whether the whole system serves, and how far it is on its way there or down."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.utils import timezone

from catalog import selectors as catalog
from fleet import models
from fleet.core import scale
from fleet.core import world as core
from fleet.core.replica import State
from fleet.selectors import silent
from fleet.selectors.serving import model_states
from llmgw.cluster import selectors as cluster
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.zones import known


def system() -> dict[str, Any]:
    """`stopped`, with who said so, when and why; `waits_for`: what is still up, or not yet back; `left`: what
    is to end on machines that are not heard, and is not waited for."""
    settings = cluster_settings.in_force()
    now, zone = timezone.now().timestamp(), known(cluster_settings.time_zone(settings))
    rows = list(models.Replica.objects.values_list("model", "state"))
    left = silent.all_left()
    ready = Counter(model for model, state in rows if state == State.READY)
    waits_for: list[str] = []
    if settings.serving.stopped:
        up = Counter(model for model, _ in rows) - Counter(found.model for found in left)
        waits_for = [f"{model}: {n} replica{'' if n == 1 else 's'} still up" for model, n in sorted(up.items())]
    else:
        states = model_states()
        for definition, stopped in catalog.wanted():
            model = core.WantedModel(definition, stopped)
            count = scale.count(model, core.Demand(), now, settings.serving, zone=zone).replicas
            if ready[model.name] < count:
                why = f"; {reason}" if (reason := states[model.name].reason) else ""
                waits_for.append(f"{model.name}: {ready[model.name]} of {count} ready{why}")
    changes = cluster.audit(limit=1, action="system.")
    last = changes[0] if changes else None
    return {
        "stopped": settings.serving.stopped,
        "note": settings.serving.note,
        "since": last["at"] if last is not None else None,
        "actor": last["actor"] if last is not None else "",
        "replicas": len(rows),
        "ready": sum(ready.values()),
        "waits_for": waits_for,
        "left": [f"{found.model}: {found.replica}: {found.sentence} ({found.command})" for found in left],
    }
