"""A change tried before it is made: written by the form, begun once, told as a picture and a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import yaml
from django.test import Client

from fleet import nudges
from llmgw.cluster.models import AuditEntry
from llmgw.portal import whatif

ADDRESS = "/admin/what-if"
SIDE = {
    "requests": 900, "refused": 12, "refused_percent": 1.333, "waited_over_1_s": 40, "ttft_p50_s": 0.11,
    "ttft_p95_s": 2.5, "gpu_hours": 336.0, "starts": 3, "cost": None,
}  # fmt: skip
ROW = {"model": "tiny", "requests": 900, "refused": 12, "ttft_p50_s": 0.11, "ttft_p95_s": 2.5, "starts": 3}
TOLD: dict[str, Any] = {
    "change": "more", "days": 7.0, "measured": {"requests": 900, "refused": 10, "ttft_p50_s": 0.1, "ttft_p95_s": None},
    "as_it_is": SIDE, "as_it_would_be": {**SIDE, "refused": 0, "gpu_hours": 500.0}, "difference": {},
    "models_as_it_is": [ROW], "models_as_it_would_be": [{**ROW, "refused": 0}],
    "sureness": ["the pace of tiny is from data sheets"], "broken": [],
}  # fmt: skip


@pytest.fixture(autouse=True)
def _nobody_tries(redis_url: str) -> Iterator[None]:
    nudges.client().delete(whatif.KEY, whatif.NOW)
    yield
    nudges.client().delete(whatif.KEY, whatif.NOW)


def test_the_form_writes_a_change(admin: Client) -> None:
    said = {"what": "write", "name": "by day", "model": "tiny", "max": "4", "from": "08:00", "to": "18:00"}
    page = admin.post(ADDRESS, {**said, "window_min": "3", "nodes_out": ["node-2"], "gpu_hour": "h200: 3.1, l40s: 0.9"})
    change = yaml.safe_load(page.context["text"])
    assert change["name"] == "by day"
    assert change["nodes_out"] == ["node-2"]
    assert change["gpu_hour"] == {"h200": 3.1, "l40s": 0.9}
    scaling = change["models"]["tiny"]["scaling"]
    assert (scaling["min"], scaling["max"]) == (2, 4)
    assert scaling["schedule"] == [{"days": ["weekdays"], "from": "08:00", "to": "18:00", "min": 3}]
    assert admin.post(ADDRESS, {"what": "write", "model": "tiny", "min": "many"}).status_code == 422


def test_begun_once_and_shown_as_it_stands(admin: Client) -> None:
    assert admin.post(ADDRESS, {"what": "begin", "change": "- a list"}).status_code == 422
    assert admin.post(ADDRESS, {"what": "begin", "change": "name: [", "days": "7"}).status_code == 422
    assert admin.post(ADDRESS, {"what": "begin", "change": "name: more\n", "days": "3"}).status_code == 302
    assert AuditEntry.objects.get(action="change.rehearse").subject == "more"
    assert 'data-every="2"' in admin.get(ADDRESS).content.decode()
    assert admin.post(ADDRESS, {"what": "begin", "change": "name: more\n"}).status_code == 409
    assert admin.post(ADDRESS, {"what": "stop"}).status_code == 302
    run = whatif.newest()
    assert run is not None
    assert run.state == "stopping"


def test_what_was_found_is_a_picture_and_a_table(admin: Client) -> None:
    run = whatif.Run(id="1", change="name: more\n", days=7, actor="ada", begun_at=1.0, state="done", told=TOLD)
    nudges.client().set(whatif.KEY, msgspec.json.encode(run))
    page = admin.get(ADDRESS).content.decode()
    assert page.count('<svg class="plot"') == 3  # nobody said what a card costs
    assert "-12" in page
    assert "+164.0" in page
    assert "12 → 0" in page.replace("<span>", "")
    assert "the pace of tiny is from data sheets" in page


@pytest.mark.slow
def test_a_refusal_of_the_command_is_told(db: None) -> None:
    run = whatif.begin(change="name: more\nsing: true\n", days=1, actor="ada")
    whatif.carry_out(run.id)
    found = whatif.newest()
    assert found is not None
    assert (found.state, found.told) == ("failed", None)
    assert found.reason is not None
    assert found.reason.sentence
