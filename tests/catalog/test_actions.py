"""Models come, change, rest and go; a name has one owner."""

from __future__ import annotations

from typing import Any

import pytest

from catalog import selectors
from catalog.actions import models
from catalog.core.reading import read
from catalog.core.starter import starter
from catalog.models import Model, ModelName
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.errors import Conflict, Invalid, NotFound
from llmgw.cluster.models import AuditEntry, Change

pytestmark = pytest.mark.django_db


def add(raw: dict[str, Any]) -> models.Done:
    return models.add_all(raws=[raw], actor="test")[0]


def catalog_version() -> int:
    return Change.objects.filter(name="catalog").values_list("version", flat=True).first() or 0


def test_added_again_it_is_unchanged_and_nothing_is_told(tiny: dict[str, Any]) -> None:
    assert add(tiny).did == "added"
    version = catalog_version()
    assert add(tiny).did == "unchanged"
    assert models.add(definition=read(tiny), actor="test").did == "unchanged"
    assert catalog_version() == version
    assert AuditEntry.objects.filter(action="model.add").count() == 1
    assert selectors.wanted() == [(read(tiny), False)]


def test_another_definition_is_a_change_and_not_an_addition(tiny: dict[str, Any]) -> None:
    add(tiny)
    models.stop(name="tiny", actor="test")
    other = {**tiny, "aliases": ["small"], "context_length": 512}
    with pytest.raises(Conflict) as refused:
        add(other)
    assert "aliases, context_length" in refused.value.reason.sentence
    done = models.change_all(raws=[other], actor="test")[0]
    assert (done.did, set(done.changed)) == ("changed", {"aliases", "context_length"})
    assert selectors.wanted() == [(read(other), True)]
    assert set(ModelName.objects.values_list("name", flat=True)) == {"tiny", "small"}
    with pytest.raises(NotFound):
        models.change_all(raws=[{**tiny, "name": "nobody"}], actor="test")


def test_names_and_aliases_are_one_namespace_folded_as_ascii(tiny: dict[str, Any]) -> None:
    add({**tiny, "name": "ID-TINY", "aliases": ["small"]})
    assert selectors.entry("id-tiny").name == "ID-TINY"
    for clash in ({"name": "id-tiny"}, {"name": "Small"}, {"name": "b", "aliases": ["ID-tiny"]}):
        with pytest.raises(Conflict):
            add({**tiny, **clash})
    assert Model.objects.count() == 1


def test_several_are_added_together_or_not_at_all(tiny: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as refused:
        models.add_all(raws=[tiny, {"name": "b"}, {"name": "c", "source": "x"}], actor="test")
    assert {"model b", "model c"} <= {p.sentence.split(":")[0] for p in refused.value.problems}
    with pytest.raises(Conflict):
        models.add_all(raws=[tiny, {**tiny, "name": "b", "aliases": ["tiny"]}], actor="test")
    assert not Model.objects.exists()


def test_stopped_started_removed_each_with_its_line_in_the_audit_log(tiny: dict[str, Any]) -> None:
    add({**tiny, "aliases": ["small"]})
    models.stop(name="small", actor="ada")
    models.stop(name="tiny", actor="ada")
    assert selectors.models()[0]["state"] == "stopped"
    models.start(name="tiny", actor="ada")
    assert models.remove(name="small", actor="ada") == "tiny"
    assert selectors.wanted() == []
    actions = list(AuditEntry.objects.filter(actor="ada").order_by("id").values_list("action", flat=True))
    assert actions == ["model.stop", "model.start", "model.remove"]
    with pytest.raises(NotFound):
        models.stop(name="tiny", actor="ada")


def test_declared_models_run_beside_stored_ones_and_are_changed_in_the_settings(tiny: dict[str, Any]) -> None:
    declared = {**tiny, "name": "declared", "aliases": ["d"]}
    cluster_settings.put(path="models", value=[declared], actor="test")
    add(tiny)
    assert [d.name for d, _ in selectors.wanted()] == ["declared", "tiny"]
    for refused in (
        lambda: models.remove(name="d", actor="test"),
        lambda: models.change_all(raws=[{**declared, "context_length": 9}], actor="test"),
        lambda: add({**tiny, "name": "D"}),
        lambda: add({**tiny, "name": "b", "aliases": ["declared"]}),
    ):
        with pytest.raises(Conflict):
            refused()
    assert add(declared).did == "unchanged"
    models.stop(name="d", actor="test")
    assert [(d.name, stopped) for d, stopped in selectors.wanted()] == [("declared", True), ("tiny", False)]
    models.start(name="d", actor="test")
    assert [stopped for _, stopped in selectors.wanted()] == [False, False]
    cluster_settings.put(path="models", value=[], actor="test")
    assert add(declared).did == "added"


def test_settings_that_declare_a_bad_model_are_not_saved(tiny: dict[str, Any]) -> None:
    add(tiny)
    for bad, said in (
        ({"name": "x", "profiles": []}, "source is missing"),
        ({**tiny, "name": "x", "aliases": ["tiny"]}, "already of the model tiny"),
    ):
        with pytest.raises(Invalid) as refused:
            cluster_settings.put(path="models", value=[bad], actor="test")
        assert said in str(refused.value)
    assert cluster_settings.current()[0] == 0


def test_a_row_of_another_version_stops_nobody_else(tiny: dict[str, Any]) -> None:
    add(tiny)
    Model.objects.create(name="odd", definition={"name": "odd", "from": "the future"})
    assert [d.name for d, _ in selectors.wanted()] == ["tiny"]
    odd = selectors.models()[0]
    assert (odd["name"], odd["state"]) == ("odd", "invalid")
    assert "another version" in odd["reason"]
    assert models.change_all(raws=[{**tiny, "name": "odd"}], actor="test")[0].did == "changed"


def test_the_catalog_costs_three_queries_however_long(tiny: dict[str, Any], django_assert_num_queries: Any) -> None:
    for number in range(5):
        add({**tiny, "name": f"m{number}"})
    with django_assert_num_queries(3):
        assert len(selectors.wanted()) == 5


def test_the_starter_is_added_like_any_other() -> None:
    assert models.add(definition=starter("tiny"), actor="up").did == "added"
    assert selectors.entry("tiny").definition == starter("tiny")
