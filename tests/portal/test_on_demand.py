"""What a model's page says of one that loads when somebody asks."""

from __future__ import annotations

import pytest
from django.test import Client

from catalog.models import Model
from fleet import models

pytestmark = pytest.mark.django_db


def on_demand(name: str) -> None:
    definition = {
        "name": name,
        "source": "starter:tiny",
        "profiles": [{"run": {"name": "cpu", "engine": "llamacpp", "cpu_cores": 1}}],
        "scaling": {"min": 0, "max": 1},
    }
    Model.objects.create(name=name, definition=definition)


def test_it_says_what_it_waits_for_and_that_idle_is_no_fault(admin: Client) -> None:
    on_demand("alpha")
    on_demand("beta")
    models.Replica.objects.create(
        model="beta",
        reason="it waits for a card that alpha holds: it is in use",
        reason_code="waits_for_card",
        held_by="alpha",
    )
    idle = admin.get("/admin/models/alpha").content.decode()
    assert "It loads when somebody asks for it." in idle
    assert "the next request starts it" in idle
    assert "It does not serve. Why:" not in idle
    waits = admin.get("/admin/models/beta").content.decode()
    assert "It waits for a card that alpha holds." in waits
    assert 'href="/admin/models/alpha"' in waits
    assert "llmgw config set fleet.swap_max_wait_s" in waits
    listed = admin.get("/admin/models").content.decode()
    assert "loads when asked" in listed
    assert "waits for a card" in listed
