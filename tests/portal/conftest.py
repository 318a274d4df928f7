"""Pages over Django's client, and a browser on the real web process."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.portal import seed


@pytest.fixture
def seeded(db: None) -> seed.Seeded:
    return seed.fill()


@pytest.fixture
def admin(seeded: seed.Seeded) -> Client:
    client = Client()
    client.force_login(seeded.admin, backend="django.contrib.auth.backends.ModelBackend")
    return client


@pytest.fixture
def member(seeded: seed.Seeded) -> Client:
    client = Client()
    client.force_login(seeded.member, backend="django.contrib.auth.backends.ModelBackend")
    return client
