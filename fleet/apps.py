from __future__ import annotations

from django.apps import AppConfig


class FleetConfig(AppConfig):
    name = "fleet"
    verbose_name = "Fleet"

    def ready(self) -> None:
        from fleet import nudges
        from llmgw.cluster.changes import listen

        for part in ("catalog", "fleet", "policies"):
            listen(part, nudges.reconcile)
