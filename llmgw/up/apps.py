from django.apps import AppConfig


class UpConfig(AppConfig):
    name = "llmgw.up"
    label = "up"
