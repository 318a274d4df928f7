from django.apps import AppConfig


class CatalogConfig(AppConfig):
    name = "catalog"
    verbose_name = "Models"

    def ready(self) -> None:
        from catalog import selectors  # it imports models, which are loaded by now
        from llmgw.cluster.actions import settings

        settings.check_with(selectors.declared_problems)
