"""The models that people asked for: a definition each, and every name they answer to in one namespace."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class Model(models.Model):
    """A served model. `definition` is what `catalog.core.definition` validated, as builtins."""

    class Origin(models.TextChoices):
        STORED = "stored", _("stored")
        DECLARED = "declared", _("declared in the settings")

    name = models.CharField(max_length=120, unique=True)
    definition = models.JSONField()
    origin = models.CharField(max_length=10, choices=Origin.choices, default=Origin.STORED)
    stopped = models.BooleanField(default=False)
    """Asked to rest: no replica is wanted until it is started again."""
    rollout = models.JSONField(default=dict, blank=True)
    """{"at": Unix seconds, "in_place": bool}: replicas from before then are replaced; {}: nobody asked."""
    measured = models.JSONField(default=dict, blank=True)
    """What a replica of each profile was measured to carry (`catalog.core.capacity` as builtins), by its name."""
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        verbose_name = _("model")
        verbose_name_plural = _("models")

    def __str__(self) -> str:
        return self.name


class ModelName(models.Model):
    """A name or an alias: one namespace, so that the database refuses a second owner."""

    name = models.CharField(max_length=120, unique=True)
    model = models.ForeignKey(Model, on_delete=models.CASCADE, related_name="names")

    def __str__(self) -> str:
        return self.name


class Unwanted(models.Model):
    """Weights that nobody uses any more, of a model that was removed with its files: nodes delete their copies."""

    source = models.CharField(max_length=500, unique=True)
    actor = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["source"]
        verbose_name = _("unwanted weights")
        verbose_name_plural = _("unwanted weights")

    def __str__(self) -> str:
        return self.source


class ModelPrice(models.Model):
    """An entry of a stored model's price. Entries are added and never changed: a correction is another one."""

    model = models.CharField(max_length=120)
    """The model's name, folded: its prices stay when it leaves the catalog."""
    since = models.DateTimeField()
    figures = models.JSONField(null=True)
    """As `catalog.core.prices.figures` writes them; null: the cluster's default price from then on."""
    actor = models.CharField(max_length=200)
    note = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["model", "-since", "-id"]
        verbose_name = _("price")
        verbose_name_plural = _("prices")

    def __str__(self) -> str:
        return f"{self.model} {self.since:%Y-%m-%d}"
