"""What the gateway keeps: one usage row a request, by text, since what it names may be gone tomorrow."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class Usage(models.Model):
    """One request. Inserted once by its id, whatever was shipped twice. Counts are null where nobody could say."""

    class Outcome(models.TextChoices):
        OK = "ok", _("answered")
        CLIENT_LEFT = "client_left", _("the client left")
        ENGINE_FAILED = "engine_failed", _("the engine failed")
        REFUSED = "refused", _("refused")
        TIMED_OUT = "timed_out", _("timed out")
        UNKNOWN = "unknown", _("not known: the gateway died")

    request_id = models.CharField(max_length=40, unique=True)
    at = models.DateTimeField(db_index=True)
    endpoint = models.CharField(max_length=20)
    model = models.CharField(max_length=120, db_index=True)
    asked = models.CharField(max_length=120)
    stream = models.BooleanField(default=False)
    organisation = models.CharField(max_length=16, blank=True)
    team = models.CharField(max_length=16, blank=True)
    project = models.CharField(max_length=16, blank=True)
    key = models.CharField(max_length=16, blank=True)
    person = models.CharField(max_length=16, blank=True)
    edge = models.CharField(max_length=60, blank=True)
    outcome = models.CharField(max_length=14, choices=Outcome.choices)
    status = models.PositiveSmallIntegerField(null=True)
    code = models.CharField(max_length=60, blank=True)
    replica = models.CharField(max_length=20, blank=True)
    node = models.CharField(max_length=120, blank=True)
    route = models.CharField(max_length=300, blank=True)
    attempts = models.PositiveSmallIntegerField(default=1)
    prompt_tokens = models.PositiveIntegerField(null=True)
    completion_tokens = models.PositiveIntegerField(null=True)
    cached_tokens = models.PositiveIntegerField(null=True)
    estimated = models.BooleanField(default=False)
    ttft_ms = models.FloatField(null=True)
    duration_ms = models.FloatField(null=True)

    class Meta:
        ordering = ["-at"]
        indexes = [
            models.Index(fields=["project", "-at"], name="usage_project_at"),
            models.Index(fields=["key", "-at"], name="usage_key_at"),
        ]
        verbose_name = _("usage row")
        verbose_name_plural = _("usage rows")

    def __str__(self) -> str:
        return self.request_id
