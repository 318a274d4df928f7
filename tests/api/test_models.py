"""The catalog by the API: the shape of the YAML in, and out again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rest_framework.test import APIClient

pytestmark = pytest.mark.django_db


def definition(**changes: Any) -> dict[str, Any]:
    return {
        "name": "Tiny-2",
        "aliases": ["small"],
        "source": "starter:tiny",
        "scaling": {"min": 1, "max": 1},
        "profiles": [{"name": "cpu", "engine": "llamacpp", "min_memory_gb": 0.5}],
        **changes,
    }


def test_a_model_is_added_once_and_given_back_as_it_was_written(api: APIClient) -> None:
    made = api.post("/api/v1/models", definition(), format="json")
    assert made.status_code == 201
    assert api.post("/api/v1/models", definition(), format="json").status_code == 200
    for name in ("Tiny-2", "tiny-2", "small", "SMALL"):
        found = api.get(f"/api/v1/models/{name}").json()
        assert found["name"] == "Tiny-2"
        assert found["definition"] == definition()
    assert [m["name"] for m in api.get("/api/v1/models").json()["results"]] == ["Tiny-2"]


def test_another_definition_under_the_same_name_is_a_change(api: APIClient) -> None:
    api.post("/api/v1/models", definition(), format="json")
    refused = api.post("/api/v1/models", definition(context_length=512), format="json")
    assert refused.status_code == 409
    assert "context_length" in refused.json()["error"]["message"]
    changed = api.put("/api/v1/models/tiny-2", definition(context_length=512), format="json")
    assert changed.json()["context_length"] == 512


def test_every_problem_is_named_at_once(api: APIClient) -> None:
    answer = api.post(
        "/api/v1/models", {"name": "-", "sauce": "x", "profiles": [{"name": "cpu", "engine": "vvlm"}]}, format="json"
    )
    assert answer.status_code == 422
    problems = " ".join(answer.json()["error"]["problems"])
    for said in ("did you mean source?", "source is missing", "no engine vvlm", "'-' must be"):
        assert said in problems


def test_weights_that_are_not_there_are_a_sentence_now(api: APIClient, tmp_path: Path) -> None:
    missing = definition(source=str(tmp_path / "none.gguf"))
    refused = api.post("/api/v1/models", missing, format="json")
    assert refused.status_code == 422
    assert refused.json()["error"]["code"] == "source_missing"
    assert api.post("/api/v1/models?source_check=false", missing, format="json").status_code == 201


def test_a_model_rests_starts_and_goes(api: APIClient) -> None:
    api.post("/api/v1/models", definition(), format="json")
    assert api.post("/api/v1/models/tiny-2/stop").json()["state"] == "stopped"
    assert api.post("/api/v1/models/tiny-2/start").json()["stopped"] is False
    assert api.delete("/api/v1/models/tiny-2").status_code == 204
    gone = api.get("/api/v1/models/tiny-2")
    assert gone.status_code == 404
    assert gone.json()["error"]["code"] == "no_such_model"


def test_a_body_that_is_no_definition_is_refused(api: APIClient) -> None:
    assert api.post("/api/v1/models", ["x"], format="json").status_code == 422
    assert api.post("/api/v1/models", "{", content_type="application/json").status_code == 400


def test_a_price_is_entered_and_never_rewritten(api: APIClient) -> None:
    made = api.post("/api/v1/models", definition(), format="json").json()
    assert (made["price"]["own"], made["price"]["prompt_per_1k"]) == (False, 500)
    address = "/api/v1/models/tiny-2/prices"
    changed = api.post(address, {"prompt_per_1k": 7, "cached_per_1k": 1, "note": "measured"}, format="json")
    assert changed.status_code == 201
    assert (changed.json()["price"]["own"], changed.json()["price"]["prompt_per_1k"]) == (True, 7)
    assert api.post(address, {"cached_per_1k": None}, format="json").json()["price"]["cached_per_1k"] is None
    assert [(e["cached_per_1k"], e["note"]) for e in api.get(address).json()] == [(None, ""), (1, "measured")]
    assert api.post(address, {"prompt_per_1k": -1}, format="json").status_code == 422
    assert api.post(address, {}, format="json").status_code == 422
