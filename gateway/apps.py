from __future__ import annotations

import functools

from django.apps import AppConfig


class GatewayConfig(AppConfig):
    name = "gateway"
    verbose_name = "Traffic"

    def ready(self) -> None:
        from catalog import selectors as catalog
        from gateway import noticing, selectors
        from gateway.control import ingesting, judging, telling
        from gateway.control.parts import DEPENDS
        from gateway.control.publishing import publish_quietly
        from llmgw.cluster import why
        from llmgw.cluster.changes import listen

        catalog.ask_outside_of(selectors.outside)
        for part, depends in DEPENDS.items():
            publish = functools.partial(publish_quietly, part)
            for change in depends:
                listen(change, publish)
        ingesting.listen(noticing.refused)
        why.register("request", telling.request, begins="req_")
        why.register("key", judging.key)
