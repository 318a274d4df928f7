"""What the gateway keeps: one usage row a request, by text, since what it names may be gone tomorrow; its sums by
the hour; and corrections, since neither is ever rewritten.

On PostgreSQL the rows are in monthly partitions (`gateway.control.partitions`), by (`request_id`, `at`); request ids
begin with their time, so that an id has one place. Amounts are nano-units of the currency (`llmgw.price`).
"""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

FOUND_BY = ("project", "key", "model", "person")
"""What rows are looked up by, the newest first; also by outcome and status of what went wrong, and by session."""


class Usage(models.Model):
    """One request. Inserted once by its id, whatever was shipped twice. Counts are null where nobody could say."""

    class Outcome(models.TextChoices):
        OK = "ok", _("answered")
        CLIENT_LEFT = "client_left", _("the client left")
        ENGINE_FAILED = "engine_failed", _("the engine failed")
        REFUSED = "refused", _("refused")
        TIMED_OUT = "timed_out", _("timed out")
        UNKNOWN = "unknown", _("not known: the gateway died")

    request_id = models.CharField(max_length=40, primary_key=True)
    at = models.DateTimeField()
    endpoint = models.CharField(max_length=20)
    model = models.CharField(max_length=120)
    asked = models.CharField(max_length=120)
    stream = models.BooleanField(default=False)
    organisation = models.CharField(max_length=16, blank=True)
    team = models.CharField(max_length=16, blank=True)
    project = models.CharField(max_length=16, blank=True)
    key = models.CharField(max_length=16, blank=True)
    person = models.CharField(max_length=16, blank=True)
    edge = models.CharField(max_length=60, blank=True)
    session = models.CharField(max_length=128, blank=True)
    end_user = models.CharField(max_length=256, blank=True)
    tags = models.JSONField(default=dict, blank=True)
    outcome = models.CharField(max_length=14, choices=Outcome.choices)
    status = models.PositiveSmallIntegerField(null=True)
    code = models.CharField(max_length=60, blank=True)
    reason = models.CharField(max_length=300, blank=True)
    """The refusal's sentence, where the gateway itself refused."""
    replica = models.CharField(max_length=140, blank=True)
    """`r-…`, or `external:MODEL#NUMBER`."""
    node = models.CharField(max_length=120, blank=True)
    route = models.CharField(max_length=300, blank=True)
    attempts = models.PositiveSmallIntegerField(default=1)
    served = models.CharField(max_length=120, blank=True)
    """The model that answered, where it is not `model`."""
    hops = models.JSONField(default=list, blank=True)
    prompt_tokens = models.PositiveIntegerField(null=True)
    completion_tokens = models.PositiveIntegerField(null=True)
    cached_tokens = models.PositiveIntegerField(null=True)
    estimated = models.BooleanField(default=False)
    cost = models.BigIntegerField(null=True)
    """Nano-units; null: nobody priced it."""
    cache = models.CharField(max_length=8, blank=True)
    saved = models.BigIntegerField(null=True)
    """Nano-units that an answer given again, or a prompt's beginning read from an engine's cache, did not cost."""
    saved_tokens = models.PositiveIntegerField(null=True)
    queued_ms = models.FloatField(null=True)
    dispatched_ms = models.FloatField(null=True)
    """When the last attempt was sent."""
    ttft_ms = models.FloatField(null=True)
    duration_ms = models.FloatField(null=True)

    class Meta:
        ordering = ["-at"]
        indexes = [
            models.Index(fields=["-at"], name="usage_at"),
            *(models.Index(fields=[name, "-at"], name=f"usage_{name}_at") for name in FOUND_BY),
            *(
                models.Index(fields=[name, "-at"], name=f"usage_{name}_at", condition=~models.Q(**{ref: value}))
                for name, ref, value in (
                    ("outcome", "outcome", "ok"),
                    ("status", "outcome", "ok"),
                    ("session", "session", ""),
                )
            ),
        ]
        verbose_name = _("usage row")
        verbose_name_plural = _("usage rows")

    def __str__(self) -> str:
        return self.request_id


class KeptRequest(models.Model):
    """A request as the model was sent it, and its answer as the client got it, for the hours that its project says.
    Both are compressed (`gateway.core.kept`)."""

    request_id = models.CharField(max_length=40, primary_key=True)
    at = models.DateTimeField()
    project = models.CharField(max_length=16)
    endpoint = models.CharField(max_length=20)
    model = models.CharField(max_length=120)
    stream = models.BooleanField()
    request = models.BinaryField()
    answer = models.BinaryField()
    request_bytes = models.PositiveIntegerField()
    answer_bytes = models.PositiveIntegerField()
    """As many as the client got; of a long one only the beginning is here."""
    replay_of = models.CharField(max_length=40, blank=True)

    class Meta:
        ordering = ["-at"]
        indexes = [
            models.Index(fields=["project", "at"], name="kept_project_at"),
            models.Index(fields=["replay_of"], name="kept_replay_of", condition=~models.Q(replay_of="")),
        ]
        verbose_name = _("kept request")
        verbose_name_plural = _("kept requests")

    def __str__(self) -> str:
        return self.request_id


class UsageHour(models.Model):
    """Sums of the rows of one hour, alike in who used what. `model` is the one that answered. Added to in the
    transaction that inserts the rows; pages, exports and budgets read these, never the rows.

    `at` is where the stretch of time begins: an hour, or less in a zone that is off by half an hour
    (`gateway.control.rollups.grain_s`).
    """

    at = models.DateTimeField()
    organisation = models.CharField(max_length=16, blank=True)
    team = models.CharField(max_length=16, blank=True)
    project = models.CharField(max_length=16, blank=True)
    key = models.CharField(max_length=16, blank=True)
    person = models.CharField(max_length=16, blank=True)
    model = models.CharField(max_length=120)
    requests = models.BigIntegerField(default=0)
    failed = models.BigIntegerField(default=0)
    """The engine failed, time ran out, or the gateway died."""
    refused = models.BigIntegerField(default=0)
    uncounted = models.BigIntegerField(default=0)
    """Somebody worked on them, and nobody could say how many tokens it was."""
    estimated = models.BigIntegerField(default=0)
    hits = models.BigIntegerField(default=0)
    """Answered from the answer cache."""
    prompt_tokens = models.BigIntegerField(default=0)
    completion_tokens = models.BigIntegerField(default=0)
    cached_tokens = models.BigIntegerField(default=0)
    reused_tokens = models.BigIntegerField(default=0)
    """What answers counted that were given again."""
    saved_answers = models.BigIntegerField(default=0)
    """Nano-units that these did not cost."""
    saved_prefixes = models.BigIntegerField(default=0)
    """Nano-units that prompts did not cost because engines had read their beginnings before."""
    cost = models.BigIntegerField(default=0)
    """Nano-units, corrections included."""
    unpriced = models.BigIntegerField(default=0)
    """Somebody worked on them, and nobody priced it."""

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["at", "organisation", "team", "project", "key", "person", "model"], name="usage_hour_once"
            )
        ]
        indexes = [
            models.Index(fields=[name, "at"], name=f"usage_hour_{name}")
            for name in ("organisation", "team", "project", "key", "person")
        ]
        verbose_name = _("usage of an hour")
        verbose_name_plural = _("usage by hour")

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M} {self.project} {self.model}"


class UsageCorrection(models.Model):
    """Money that the rows of one hour, alike in who used what, should have cost more (or less). Append-only."""

    made_at = models.DateTimeField(auto_now_add=True)
    actor = models.CharField(max_length=200)
    reason = models.CharField(max_length=300)
    at = models.DateTimeField()
    organisation = models.CharField(max_length=16, blank=True)
    team = models.CharField(max_length=16, blank=True)
    project = models.CharField(max_length=16, blank=True)
    key = models.CharField(max_length=16, blank=True)
    person = models.CharField(max_length=16, blank=True)
    model = models.CharField(max_length=120)
    requests = models.BigIntegerField()
    """How many rows it is about."""
    delta = models.BigIntegerField()
    """Nano-units."""

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["at", "model"], name="usage_correction_at")]
        verbose_name = _("correction of usage")
        verbose_name_plural = _("corrections of usage")

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M} {self.model}: {self.delta}"
