"""The tree organisation → team → project → key, the people in it, and their roles."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Any, ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.db import models
from django.utils.translation import gettext_lazy as _

from llmgw.fold import fold


def public_id() -> str:
    """Random, short enough to read out: what everybody outside the store calls a row."""
    return secrets.token_hex(8)


class People(BaseUserManager["Person"]):
    """Django's door to accounts (`createsuperuser`, allauth). Ours is `tenancy.actions.people`."""

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> Person:
        person = self.model(email=fold(email), **fields)
        person.set_password(password)
        person.save(using=self._db)
        return person

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> Person:
        return self.create_user(email, password, is_staff=True, is_superuser=True, **fields)

    def get_by_natural_key(self, username: str | None) -> Person:
        return self.get(email=fold(username or ""))


class Person(AbstractBaseUser, PermissionsMixin):
    """Somebody who signs in, by e-mail. A cluster's administrator is `is_superuser`."""

    public_id = models.CharField(max_length=16, unique=True, default=public_id, editable=False)
    email = models.EmailField(_("e-mail"), unique=True)
    name = models.CharField(_("name"), max_length=120, blank=True)
    language = models.CharField(max_length=5, blank=True)
    is_active = models.BooleanField(default=True)
    is_staff = models.BooleanField(default=False)
    must_change_password = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    objects: ClassVar[People] = People()
    USERNAME_FIELD = "email"
    EMAIL_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    class Meta:
        ordering = ["email"]
        verbose_name = _("person")
        verbose_name_plural = _("people")

    def __str__(self) -> str:
        return self.email


class Level(models.Model):
    """What organisation, team and project have alike. A level narrows what is above it."""

    public_id = models.CharField(max_length=16, unique=True, default=public_id, editable=False)
    name = models.CharField(max_length=80)
    allow = models.JSONField(null=True, blank=True)
    """Model names that may be used below; null: whatever the level above allows."""
    limits = models.JSONField(default=dict, blank=True)
    """As `tenancy.core.limits.stored` writes them."""
    in_cluster = models.BooleanField(_("stays in the cluster"), default=False)
    """Nothing of it, and of what is below, leaves the cluster."""
    no_store = models.BooleanField(_("nothing is kept"), default=False)
    """Nothing that it, or what is below, says or is answered is kept."""
    key_ttl_days = models.PositiveIntegerField(null=True, blank=True)
    """The longest life of keys made below; null: what the level above says."""
    tools = models.JSONField(null=True, blank=True)
    """Patterns of tools (`jira.*`) that may be used below; null: says nothing."""
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        abstract = True
        ordering = ["name"]

    def __str__(self) -> str:
        return self.path

    @property
    def path(self) -> str:
        """The level as commands and pages name it: `organisation/team/project`, down to where it stands."""
        return self.name


class Organisation(Level):
    class Meta(Level.Meta):
        constraints = [models.UniqueConstraint(fields=["name"], name="organisation_name")]
        verbose_name = _("organisation")
        verbose_name_plural = _("organisations")


class Team(Level):
    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="teams")

    class Meta(Level.Meta):
        constraints = [models.UniqueConstraint(fields=["organisation", "name"], name="team_name")]
        verbose_name = _("team")
        verbose_name_plural = _("teams")

    @property
    def path(self) -> str:
        return f"{self.organisation.name}/{self.name}"


class Project(Level):
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="projects")
    weight = models.FloatField(default=1.0)
    """Its share against the other projects' when requests wait."""
    when_spent = models.CharField(max_length=120, blank=True)
    """The model that answers once a budget is spent; empty: requests are refused."""
    reuse = models.JSONField(null=True, blank=True)
    reuse_since = models.DateTimeField(null=True, blank=True)
    """Answers given before are not given again."""
    """Answers are given again: {ttl_s, any, similar}; null: they are not."""
    keep = models.JSONField(null=True, blank=True)
    """Requests are kept: {hours, sample}; null: they are not."""
    time_zone = models.CharField(max_length=64, blank=True)
    """By whose clock its budgets begin; empty: the cluster's."""

    class Meta(Level.Meta):
        constraints = [
            models.UniqueConstraint(fields=["team", "name"], name="project_name"),
            models.CheckConstraint(condition=models.Q(weight__gt=0), name="project_weight"),
        ]
        verbose_name = _("project")
        verbose_name_plural = _("projects")

    @property
    def path(self) -> str:
        return f"{self.team.path}/{self.name}"


class Membership(models.Model):
    """A person's role at one level; it holds for everything below that level."""

    class Role(models.TextChoices):
        OWNER = "owner", _("owner")
        MEMBER = "member", _("member")

    person = models.ForeignKey(Person, on_delete=models.CASCADE, related_name="memberships")
    organisation = models.ForeignKey(Organisation, on_delete=models.CASCADE, null=True, blank=True)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, null=True, blank=True)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, null=True, blank=True)
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.MEMBER)

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="membership_one_level",
                condition=(
                    models.Q(organisation__isnull=False, team__isnull=True, project__isnull=True)
                    | models.Q(organisation__isnull=True, team__isnull=False, project__isnull=True)
                    | models.Q(organisation__isnull=True, team__isnull=True, project__isnull=False)
                ),
            ),
            *(
                models.UniqueConstraint(
                    fields=["person", level],
                    condition=models.Q(**{f"{level}__isnull": False}),
                    name=f"membership_once_{level}",
                )
                for level in ("organisation", "team", "project")
            ),
        ]

    def __str__(self) -> str:
        return f"{self.person} {self.role}"

    @property
    def level(self) -> Organisation | Team | Project:
        found = self.organisation or self.team or self.project
        assert found is not None  # membership_one_level
        return found


class Key(models.Model):
    """An API key: only its hash is kept; `prefix` is what a person recognises it by."""

    class Scope(models.TextChoices):
        INFERENCE = "inference", _("inference")
        ADMIN = "admin", _("admin API")

    class Band(models.TextChoices):
        INTERACTIVE = "interactive", _("interactive")
        NORMAL = "normal", _("normal")
        BATCH = "batch", _("batch")

    public_id = models.CharField(max_length=16, unique=True, default=public_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="keys")
    person = models.ForeignKey(Person, on_delete=models.SET_NULL, null=True, blank=True, related_name="keys")
    name = models.CharField(max_length=80)
    hash = models.CharField(max_length=64, unique=True, editable=False)
    prefix = models.CharField(max_length=16, editable=False)
    scope = models.CharField(max_length=10, choices=Scope.choices, default=Scope.INFERENCE)
    allow = models.JSONField(null=True, blank=True)
    limits = models.JSONField(default=dict, blank=True)
    tools = models.JSONField(null=True, blank=True)
    band = models.CharField(max_length=12, choices=Band.choices, default=Band.NORMAL)
    """Who goes first when requests wait."""
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        verbose_name = _("key")
        verbose_name_plural = _("keys")

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    def lives(self, now: datetime) -> bool:
        """Neither revoked nor expired at `now`."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > now)
