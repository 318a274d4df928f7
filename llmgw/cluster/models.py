"""What the whole cluster shares: settings revisions, audit, leases, jobs, versions of what is published."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils.translation import gettext_lazy as _


class Store(models.Model):
    """One row: which store this is. Agents remember it; a store that they do not know stops nothing."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    store_id = models.UUIDField(default=uuid.uuid4, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="cluster_one_store")]

    def __str__(self) -> str:
        return str(self.store_id)


class SettingsRevision(models.Model):
    """The cluster's settings as they were saved: append-only, the highest version is in force."""

    version = models.PositiveIntegerField(unique=True)
    document = models.JSONField(default=dict)
    note = models.CharField(max_length=200, blank=True)
    actor = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-version"]
        verbose_name = _("settings revision")
        verbose_name_plural = _("settings revisions")

    def __str__(self) -> str:
        return f"{self.version}"


class AuditEntry(models.Model):
    """One change, sign-in or refusal. Names its actor and subject by text: they may be gone."""

    at = models.DateTimeField(auto_now_add=True, db_index=True)
    actor = models.CharField(max_length=200)
    action = models.CharField(max_length=80, db_index=True)
    subject = models.CharField(max_length=200, blank=True, db_index=True)
    detail = models.JSONField(default=dict)

    class Meta:
        ordering = ["-id"]
        verbose_name = _("audit entry")
        verbose_name_plural = _("audit entries")

    def __str__(self) -> str:
        return f"{self.actor} {self.action} {self.subject}"


class Lease(models.Model):
    """Who may act now. `term` only grows: a holder of an older term is fenced off by whoever applies its plan."""

    name = models.CharField(max_length=60, primary_key=True)
    holder = models.CharField(max_length=200, blank=True)
    term = models.PositiveBigIntegerField(default=0)
    taken_at = models.DateTimeField()
    """When this term began."""
    expires_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.name}: {self.holder} (term {self.term})"


class Change(models.Model):
    """The version of something that is published (`tenancy`, `catalog`, `endpoints`, `policies`, `fleet`)."""

    name = models.CharField(max_length=40, primary_key=True)
    version = models.PositiveBigIntegerField(default=0)
    changed_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


class Job(models.Model):
    """Long work in steps; a task runs one step or one slice of it, may run twice, and saves its progress."""

    class State(models.TextChoices):
        QUEUED = "queued", _("queued")
        RUNNING = "running", _("running")
        DONE = "done", _("done")
        FAILED = "failed", _("failed")

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    kind = models.CharField(max_length=60)
    subject = models.CharField(max_length=200, blank=True)
    arguments = models.JSONField(default=dict)
    steps = models.JSONField(default=list)
    step = models.PositiveSmallIntegerField(default=0)
    progress = models.FloatField(null=True, blank=True)
    state = models.CharField(max_length=10, choices=State.choices, default=State.QUEUED)
    reason = models.TextField(blank=True)
    actor = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.kind} {self.subject} ({self.state})"


class Notice(models.Model):
    """What a person should be told of without having asked. What is so has no `over_at`; one that is not to be told
    (it was over before its time came) has no `due_at`."""

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    kind = models.CharField(max_length=60)
    subject = models.CharField(max_length=200)
    message = models.TextField()
    command = models.CharField(max_length=300, blank=True)
    detail = models.JSONField(default=dict)
    at = models.DateTimeField(db_index=True)
    over_at = models.DateTimeField(null=True, blank=True)
    due_at = models.DateTimeField(null=True, blank=True)
    """When it may be told: the same of the same at most once an hour."""
    told_at = models.DateTimeField(null=True, blank=True)
    """When it was given to the webhooks that wanted it, were they none."""

    class Meta:
        ordering = ["-at", "-id"]
        verbose_name = _("notice")
        verbose_name_plural = _("notices")
        indexes = [
            models.Index(fields=["kind", "subject", "told_at"], name="cluster_notice_told"),
            models.Index(
                fields=["due_at"], condition=models.Q(told_at=None, due_at__isnull=False), name="cluster_notice_due"
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "subject"], condition=models.Q(over_at=None), name="cluster_notice_standing"
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.subject}"


class Delivery(models.Model):
    """A notice on its way to one webhook."""

    class State(models.TextChoices):
        WAITING = "waiting", _("waiting")
        SENT = "sent", _("sent")
        FAILED = "failed", _("given up")

    notice = models.ForeignKey(Notice, on_delete=models.CASCADE, related_name="deliveries")
    webhook = models.CharField(max_length=12)
    """A digest of its address, which may be a secret."""
    to = models.CharField(max_length=120)
    """Its name, or its host."""
    state = models.CharField(max_length=10, choices=State.choices, default=State.WAITING)
    tries = models.PositiveSmallIntegerField(default=0)
    due_at = models.DateTimeField()
    answer = models.CharField(max_length=300, blank=True)
    """What it answered last, or why it did not."""
    at = models.DateTimeField(null=True, blank=True)
    """Of that."""

    class Meta:
        ordering = ["id"]
        verbose_name = _("delivery")
        verbose_name_plural = _("deliveries")
        indexes = [
            models.Index(fields=["due_at"], condition=models.Q(state="waiting"), name="cluster_delivery_due"),
        ]
        constraints = [models.UniqueConstraint(fields=["notice", "webhook"], name="cluster_delivery_once")]

    def __str__(self) -> str:
        return f"{self.notice} → {self.to} ({self.state})"
