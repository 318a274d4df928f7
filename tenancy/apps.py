from django.apps import AppConfig


class TenancyConfig(AppConfig):
    name = "tenancy"
    verbose_name = "People"

    def ready(self) -> None:
        from tenancy import receivers  # it imports models, which are loaded by now

        receivers.connect()
