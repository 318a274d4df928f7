from allauth.account import signals
from django.apps import AppConfig


class PortalConfig(AppConfig):
    name = "llmgw.portal"
    label = "portal"

    def ready(self) -> None:
        from llmgw.portal import password

        for signal in (signals.password_changed, signals.password_set, signals.password_reset):
            signal.connect(password.chosen, dispatch_uid="portal.password")
