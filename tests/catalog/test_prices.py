"""What models cost: entries that are added and never changed, for stored models and for declared ones."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from django.core.management import call_command
from django.utils import timezone

from catalog import selectors
from catalog.actions import models, prices
from catalog.core.prices import Entered, history
from catalog.core.reading import read
from catalog.core.writing import written
from catalog.models import ModelPrice
from gateway.control import parts
from llmgw.cluster.actions import settings
from llmgw.cluster.errors import Conflict, Invalid
from llmgw.price import Dated, Price, at

pytestmark = pytest.mark.django_db
CHEAP = {"prompt_per_1k": 2500, "cached_per_1k": 250, "completion_per_1k": 10_000}


def moment(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def add(raw: dict[str, Any], **more: Any) -> None:
    models.add_all(raws=[{**raw, **more}], actor="t", check_sources=False)


def change(raw: dict[str, Any], **more: Any) -> models.Done:
    return models.change_all(raws=[{**raw, **more}], actor="t", check_sources=False)[0]


def published(name: str = "tiny") -> tuple[Dated, ...]:
    part: Any = parts.models()
    found: tuple[Dated, ...] = part.models[name].prices
    return found


# -- as people write it


@pytest.mark.parametrize(
    "said",
    [
        {"price": CHEAP},
        {"price": {"prompt_per_1k": 0, "completion_per_1k": 0}},
        {"price": {"prompt_per_1k": 0, "completion_per_1k": 0, "per_image": 20_000}},
        {"prices": [{"since": "2026-12-01", **CHEAP}, {"since": "2027-01-01T12:00:00+03:00", **CHEAP}]},
    ],
)
def test_a_price_is_read_as_it_was_written(tiny: dict[str, Any], said: dict[str, Any]) -> None:
    definition = read({**tiny, **said})
    assert read(written(definition)) == definition
    assert {k: v for k, v in written(definition).items() if k in said} == said


@pytest.mark.parametrize(
    "said",
    [
        {"price": 5}, {"price": {"prompt_per_1k": 0.5}}, {"price": {"prompt_per_1k": -1}},
        {"price": {"prompt_per_1k": float("nan")}}, {"price": {"prompt_per_1k": 10**10}},
        {"price": {"promt_per_1k": 1}},
        {"prices": CHEAP}, {"prices": [{"since": "soon", **CHEAP}]}, {"price": CHEAP, "prices": [CHEAP]},
        {"prices": [{"since": "2026-12-01"}, {"since": "2026-12-01"}]}, {"prices": [{"since": "0001-01-01"}]},
    ],
)  # fmt: skip
def test_what_is_no_price(tiny: dict[str, Any], said: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        read({**tiny, **said})


def test_dates_of_yaml(tiny: dict[str, Any]) -> None:
    said = yaml.safe_load("prices: [{since: 2026-12-01, prompt_per_1k: 7}]")
    assert [w.since for w in read({**tiny, **said}).prices] == ["2026-12-01"]


def test_the_latest_entry_for_a_moment_counts() -> None:
    first, second, default = Price(prompt=1), Price(prompt=2), Price(prompt=9)
    found = history([Entered(first, 10.0, 1.0), Entered(second, 10.0, 2.0), Entered(None, 20.0, 3.0)], default)
    assert found == (Dated(second, 10.0), Dated(default, 20.0))


# -- stored models


def test_a_definition_s_price_becomes_an_entry_and_a_new_one_another(tiny: dict[str, Any]) -> None:
    add(tiny, price=CHEAP)
    add(tiny, price=CHEAP)
    add(tiny)  # says nothing of a price, and so leaves it
    assert published() == (Dated(Price(2500, 10_000, 250), 0.0),)
    with pytest.raises(Conflict, match="differs in price"):
        add(tiny, price={"prompt_per_1k": 1})
    before = timezone.now().timestamp()
    assert change(tiny, price={"prompt_per_1k": 1}).changed == ("price",)
    assert change(tiny, price={"prompt_per_1k": 1}).did == "unchanged"
    old, new = published()
    assert (old.since, new.since >= before, new.price) == (0.0, True, Price(prompt=1))
    assert change(selectors.detail(selectors.entry("tiny"))["definition"]).did == "unchanged", "what show prints"


def test_a_correction_is_a_new_entry(tiny: dict[str, Any]) -> None:
    add(tiny, price=CHEAP)
    prices.enter(model="tiny", price=Price(prompt=3), since="2026-11-01", actor="t")
    prices.enter(model="TINY", price=Price(prompt=4), since="2026-11-01", actor="t", note="mistyped")
    prices.enter(model="tiny", price=None, since="2030-01-01", actor="t")
    found = published()
    assert [at(found, moment(day)) for day in ("2026-10-31T23:59", "2026-11-01", "2030-01-02")] == [
        Price(2500, 10_000, 250), Price(prompt=4), parts.policies().default_price,
    ]  # fmt: skip
    assert ModelPrice.objects.count() == 4
    models.remove(name="tiny", actor="t")
    assert ModelPrice.objects.count() == 4, "what was charged stays known"


def test_a_day_begins_by_the_cluster_s_clock(tiny: dict[str, Any]) -> None:
    settings.put(path="time_zone", value="Europe/Istanbul", actor="t")
    add(tiny, prices=[{"since": "2026-12-01", "prompt_per_1k": 7}])
    assert published()[0].since == moment("2026-11-30T21:00")


def test_refused(tiny: dict[str, Any]) -> None:
    add(tiny)
    assert published() == ()
    with pytest.raises(Invalid, match="must be between 0"):
        prices.enter(model="tiny", price=Price(prompt=-1), actor="t")
    with pytest.raises(Invalid, match="begins at a day"):
        prices.enter(model="tiny", price=Price(), since="soon", actor="t")


def test_a_declared_model_s_price_is_the_settings_(tiny: dict[str, Any]) -> None:
    said = yaml.safe_load("prices: [{since: 2026-12-01, prompt_per_1k: 7}]")
    settings.put(path="models", value=[{**tiny, "price": None, **said}], actor="t")
    assert published() == (Dated(Price(prompt=7), moment("2026-12-01")),)
    with pytest.raises(Conflict, match="set there"):
        prices.enter(model="tiny", price=Price(), actor="t")


# -- the command


def test_the_command(tiny: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    def run(*args: str) -> Any:
        call_command("price", *args, "--json")
        return json.loads(capsys.readouterr().out)

    add(tiny)
    (row,) = run("show", "tiny")
    assert (row["own"], row["prompt_per_1k"]) == (False, 500)
    (row,) = run("set", "tiny", "--prompt-per-1k", "2500", "--cached-per-1k", "250")
    assert (row["own"], row["prompt_per_1k"], row["cached_per_1k"], row["completion_per_1k"]) == (True, 2500, 250, 1500)
    (row,) = run("set", "tiny", "--cached-per-1k", "none", "--note", "they said")
    assert (row["prompt_per_1k"], row["cached_per_1k"]) == (2500, None)
    assert [e["note"] for e in run("history", "tiny")] == ["they said", ""]
    run("set", "tiny", "--default")
    call_command("price", "show")
    assert "0.0005" in capsys.readouterr().out
    for wrong in (["set", "tiny"], ["set", "tiny", "--default", "--per-image", "1"], ["set", "none", "--default"]):
        with pytest.raises(SystemExit):
            call_command("price", *wrong)
