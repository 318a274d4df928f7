from django.apps import AppConfig


class PortalConfig(AppConfig):
    name = "llmgw.portal"
    label = "portal"
