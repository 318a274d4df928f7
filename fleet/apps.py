from __future__ import annotations

from django.apps import AppConfig


class FleetConfig(AppConfig):
    name = "fleet"
    verbose_name = "Fleet"

    def ready(self) -> None:
        from catalog import selectors as catalog
        from fleet import nudges
        from fleet.selectors import telling
        from fleet.selectors.serving import standing
        from llmgw.cluster import why
        from llmgw.cluster.changes import listen

        for part in ("catalog", "fleet", "policies"):
            listen(part, nudges.reconcile)
        catalog.ask_serving_of(standing)
        why.register("replica", telling.replica, begins="r-")
        why.register("model", telling.model)
        why.register("node", telling.node)
