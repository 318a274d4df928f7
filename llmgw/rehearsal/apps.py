from django.apps import AppConfig


class RehearsalConfig(AppConfig):
    name = "llmgw.rehearsal"
    label = "rehearsal"
