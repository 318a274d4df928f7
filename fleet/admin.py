"""The fleet in Django's admin."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from fleet.actions import certificates, nodes, replicas
from fleet.models import (
    AskedHour,
    Certificate,
    Claim,
    JoinCode,
    LastAsked,
    Learned,
    Node,
    Replica,
    ReplicaEvent,
    Shard,
    Stray,
)
from llmgw.cluster.admin import ReadOnly, each


@admin.register(Node)
class NodeAdmin(ReadOnly):
    list_display = ("node_id", "connected", "cordoned", "draining", "agent_version", "last_seen")
    list_filter = ("connected", "cordoned", "draining")
    search_fields = ("node_id",)
    actions = ("cordon", "drain", "uncordon")

    @admin.action(description=_("Cordon: place nothing more here"))
    def cordon(self, request: HttpRequest, queryset: QuerySet[Node]) -> None:
        each(
            self,
            request,
            queryset,
            lambda n, actor: nodes.cordon(node_id=n.node_id, actor=actor),
            _("{count} cordoned"),
        )

    @admin.action(description=_("Drain: move what runs here elsewhere"))
    def drain(self, request: HttpRequest, queryset: QuerySet[Node]) -> None:
        each(
            self, request, queryset, lambda n, actor: nodes.drain(node_id=n.node_id, actor=actor), _("{count} draining")
        )

    @admin.action(description=_("Uncordon: place here again"))
    def uncordon(self, request: HttpRequest, queryset: QuerySet[Node]) -> None:
        each(
            self,
            request,
            queryset,
            lambda n, actor: nodes.uncordon(node_id=n.node_id, actor=actor),
            _("{count} uncordoned"),
        )


@admin.register(Certificate)
class CertificateAdmin(ReadOnly):
    list_display = ("common_name", "serial", "not_after", "revoked_at", "reason")
    search_fields = ("common_name", "serial")
    actions = ("revoke",)

    @admin.action(description=_("Revoke: the node's connection is closed"))
    def revoke(self, request: HttpRequest, queryset: QuerySet[Certificate]) -> None:
        each(
            self,
            request,
            queryset,
            lambda c, actor: certificates.revoke(which=c.serial, actor=actor, reason="by an administrator"),
            _("{count} revoked"),
        )


@admin.register(JoinCode)
class JoinCodeAdmin(ReadOnly):
    list_display = ("code_id", "node_id", "actor", "expires_at", "used_at", "used_by")
    exclude = ("proof_key",)


@admin.register(Replica)
class ReplicaAdmin(ReadOnly):
    list_display = ("public_id", "model", "profile", "state", "reason", "failures", "state_since")
    list_filter = ("state",)
    search_fields = ("public_id", "model")
    actions = ("restart", "retry")

    @admin.action(description=_("Restart"))
    def restart(self, request: HttpRequest, queryset: QuerySet[Replica]) -> None:
        each(
            self,
            request,
            queryset,
            lambda r, actor: replicas.restart(replica=r.public_id, actor=actor),
            _("{count} restarting"),
        )

    @admin.action(description=_("Try again: a parked one, or one that waits"))
    def retry(self, request: HttpRequest, queryset: QuerySet[Replica]) -> None:
        each(
            self,
            request,
            queryset,
            lambda r, actor: replicas.retry(replica=r.public_id, actor=actor),
            _("{count} tried again"),
        )


@admin.register(Shard)
class ShardAdmin(ReadOnly):
    list_display = ("replica", "rank", "node", "port", "observed", "observed_at", "pid")
    list_select_related = ("replica", "node")
    search_fields = ("replica__public_id", "node__node_id")


@admin.register(Stray)
class StrayAdmin(ReadOnly):
    list_display = ("shard_id", "node", "model", "state", "foreign", "dismissed", "seen_at")
    list_select_related = ("node",)


@admin.register(Claim)
class ClaimAdmin(ReadOnly):
    list_display = ("node", "device", "shard")
    list_select_related = ("node", "shard__replica")


@admin.register(ReplicaEvent)
class ReplicaEventAdmin(ReadOnly):
    list_display = ("at", "replica", "model", "node", "state", "reason")
    list_filter = ("state",)
    search_fields = ("replica", "model", "node")


@admin.register(LastAsked)
class LastAskedAdmin(ReadOnly):
    list_display = ("model", "at")
    search_fields = ("model",)


@admin.register(AskedHour)
class AskedHourAdmin(ReadOnly):
    list_display = ("hour", "model")
    list_filter = ("model",)


@admin.register(Learned)
class LearnedAdmin(ReadOnly):
    list_display = ("weights", "engine", "gpu_class", "gpus", "kind", "n", "mean", "spread")
    list_filter = ("kind", "engine")
    search_fields = ("weights",)
