from django.apps import AppConfig


class ClusterConfig(AppConfig):
    name = "llmgw.cluster"
    label = "cluster"
    verbose_name = "Cluster"
