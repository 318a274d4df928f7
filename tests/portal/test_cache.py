"""The cache page: what was saved, and who saved nothing yet."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.utils import timezone

from gateway.models import UsageHour
from llmgw.price import NANO
from tests.portal import seed

pytestmark = pytest.mark.django_db


def text(page: bytes) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.decode()))


def test_what_was_saved() -> None:
    seeded = seed.fill()
    UsageHour.objects.all().delete()
    client = Client()
    client.force_login(seeded.admin)
    before = text(client.get("/admin/cache").content)
    assert "İstanbul Lab/research/assistants reproducible ones" in before, "it reuses answers, and has not yet"
    row = {"requests": 40, "hits": 7, "reused_tokens": 9001, "saved_answers": 3 * NANO}
    prefixes = {"prompt_tokens": 8000, "cached_tokens": 2000, "saved_prefixes": NANO // 2}
    UsageHour.objects.create(at=timezone.now(), project=seed.PROJECT, model="tiny", **row, **prefixes)
    UsageHour.objects.create(at=timezone.now(), project="gone000000000000", model="tiny", **row)
    page = text(client.get("/admin/cache?days=7").content)
    assert re.search(r"assistants reproducible ones 40 7 9,001 2,000 25 ?% 3\.50", page), page[-900:]
    assert "gone000000000000 no 40 7 9,001 0" in page
    assert 'class="plot"' in client.get("/admin/cache").content.decode()
    client.force_login(seeded.member)
    assert client.get("/admin/cache").status_code in (302, 403, 404)
