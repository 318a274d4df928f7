"""A model's page: its week, what was measured, and the changes that are made there."""

from __future__ import annotations

from django.test import Client

from catalog import selectors as catalog
from catalog.actions import life
from catalog.models import Model
from llmgw.portal import week
from llmgw.zones import known


def change(client: Client, **fields: str) -> int:
    return client.post("/admin/models/tiny/change", fields).status_code


def test_scaled_from_its_page_with_its_week_and_its_figures(admin: Client) -> None:
    assert change(admin, what="scale", min="2", max="4") == 302
    scaling = catalog.entry("tiny").definition.scaling  # type: ignore[union-attr]
    assert (scaling.min, scaling.max) == (2, 4)
    row = Model.objects.get(name="tiny")
    window = {"days": ["mon"], "start": 480, "end": 1080, "min": 3}
    row.definition = {**row.definition, "scaling": {"min": 1, "max": 4, "schedule": [window]}}
    row.save()
    figures = {"concurrency": 12, "tokens_per_s": 345.0, "weight": 5.5, "node": "node-1", "at": 1_700_000_000.0}
    life.measured(name="tiny", profile="cpu", figures=figures, actor="test")
    page = admin.get("/admin/models/tiny").content.decode()
    assert "08:00–18:00: 3–4" in page
    assert "345" in page


def test_refusals_are_told_in_the_house(admin: Client) -> None:
    assert change(admin, what="scale", min="4", max="2") == 422
    assert change(admin, what="scale", min="many") == 422
    assert change(admin, what="context", tokens="") == 422
    assert change(admin, what="gpus", count="2") == 422
    assert change(admin, what="sing") == 422


def test_removed_with_its_files_once_its_name_was_typed(admin: Client) -> None:
    asked = admin.post("/admin/models/tiny/change", {"what": "purge"})
    assert "nodes delete what they fetched" in asked.content.decode()
    assert change(admin, what="purge", confirm="tiny") == 302
    assert not Model.objects.filter(name="tiny").exists()


def test_a_week_is_seven_full_days(admin: Client) -> None:
    scaling = catalog.entry("tiny").definition.scaling  # type: ignore[union-attr]
    assert week.strips(scaling, 0.0, known("UTC")) == ()
