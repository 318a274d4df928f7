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
