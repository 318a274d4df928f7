"""External models and fallbacks as people write them; and models that others fall back to."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from django.core.management import call_command
from django.test import Client

from catalog import selectors
from catalog.actions import models
from catalog.core.definition import External, ExternalKey, from_builtins, to_builtins
from catalog.core.reading import read
from catalog.core.writing import written
from gateway.control import parts
from gateway.core import snapshot
from llmgw.cluster.errors import Conflict, Invalid

ONE = """
name: cloud-mini
source: external
external:
  url: https://api.example.com/
  model: gpt-4o-mini
  api_key_file: /etc/llmgw/secrets/openai.key
"""
SEVERAL = """
name: cloud-mini
aliases: [cloud]
source: external
external:
  url: https://api.example.com:8443/openai
  model: gpt-4o-mini
  api_key_files:
  - {file: /etc/llmgw/secrets/openai-1.key, weight: 2}
  - {file: /etc/llmgw/secrets/openai-2.key}
fallbacks: [tiny]
"""


def outside(**fields: Any) -> dict[str, Any]:
    return {**yaml.safe_load(ONE), **fields}


def table(**fields: Any) -> dict[str, Any]:
    found = {**yaml.safe_load(ONE)["external"], **fields}
    return outside(external={k: v for k, v in found.items() if v is not None})


def test_one_key_and_several() -> None:
    one, several = read(yaml.safe_load(ONE)), read(yaml.safe_load(SEVERAL))
    key = ExternalKey("/etc/llmgw/secrets/openai.key")
    assert one.external == External("https://api.example.com", "gpt-4o-mini", (key,))
    assert (one.source, one.profiles, one.scaling.min, one.fallbacks) == ("external", (), 0, ())
    assert several.external is not None
    assert [k.weight for k in several.external.keys] == [2.0, 1.0]
    assert several.fallbacks == ("tiny",)
    for found in (one, several):
        assert read(yaml.safe_load(yaml.safe_dump(written(found)))) == found
        assert from_builtins(to_builtins(found)) == found
    assert "scaling" not in written(one)
    assert written(one)["external"]["api_key_file"] == key.file


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (outside(profiles=[{"name": "cpu", "engine": "llamacpp"}]), "profiles says how a model runs here"),
        (outside(scaling={"min": 1}), "scaling says how a model runs here"),
        (outside(external=None), "url is missing"),
        (table(url=None), "url is missing"),
        (table(model=None), "model is missing"),
        (
            table(url="https://api.example.com/v1/"),
            "url is written without /v1, which is added to it: https://api.example.com",
        ),
        (table(url="https://me:secret@api.example.com"), "url has a name or password in it"),
        (table(url="ftp://api.example.com"), "url must be like https://api.example.com"),
        (table(url="https://api.example.com?x=1"), "without ? and #"),
        (table(url="https://api.example.com:x"), "is not an address"),
        (table(api_key_file=None), "api_key_file is missing"),
        (table(api_key_file="secrets/a.key"), "must be an absolute path"),
        (table(api_key_files=[{"file": "/a"}]), "not both"),
        (table(api_key_file=None, api_key_files=[]), "must be a list of 1 to 64"),
        (table(api_key_file=None, api_key_files=[{"file": "/a"}, "/a"]), "key 2: the file /a stands twice"),
        (table(api_key_file=None, api_key_files=[{"file": "/a", "weight": 0}]), "key 1: weight must be between"),
        (table(api_key="sk-1"), "there is no key api_key; did you mean api_key_file"),
        (outside(source="starter:tiny"), "external is for a model with source: external"),
        (outside(fallbacks=["Cloud-Mini"]), "Cloud-Mini is the model itself"),
        (outside(fallbacks=["a", "A"]), "A stands twice"),
        (outside(fallbacks=[f"m{i}" for i in range(9)]), "at most 8"),
    ],
)
def test_what_is_wrong_is_said(raw: dict[str, Any], said: str) -> None:
    with pytest.raises(Invalid) as refused:
        read(raw)
    assert any(said in p.sentence for p in refused.value.problems), refused.value.problems
    assert "sk-1" not in str(refused.value.problems)


@pytest.mark.django_db
def test_fallbacks_must_be_there_and_lead_nowhere_back(tiny: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="its fallback cloud is no model of the catalog"):
        models.add_all(raws=[{**tiny, "fallbacks": ["cloud"]}], actor="a")
    models.add_all(raws=[{**tiny, "fallbacks": ["CLOUD"]}, outside(aliases=["cloud"])], actor="a")
    with pytest.raises(Invalid, match="lead back to it: cloud-mini → tiny → cloud-mini"):
        models.change_all(raws=[outside(aliases=["cloud"], fallbacks=["tiny"])], actor="a")
    with pytest.raises(Conflict, match="cloud of cloud-mini is a fallback of tiny"):
        models.change_all(raws=[outside()], actor="a")
    with pytest.raises(Conflict, match="cloud-mini is a fallback of tiny: change their fallbacks first") as refused:
        models.remove(name="cloud", actor="a")
    assert refused.value.problems[0].command == "llmgw model remove cloud-mini --force"
    call_command("model", "remove", "cloud", "--yes", "--force")
    assert [e.name for e in selectors.entries()] == ["tiny"]
    with pytest.raises(Invalid, match="its fallback CLOUD is no model"):
        models.change_all(raws=[{**tiny, "fallbacks": ["CLOUD"], "description": "x"}], actor="a")


@pytest.mark.django_db
def test_it_is_published_with_its_files_and_nothing_is_placed(tiny: dict[str, Any]) -> None:
    models.add_all(raws=[tiny, yaml.safe_load(SEVERAL)], actor="a")
    entry = parts.models().models["cloud-mini"]
    assert (entry.state, entry.fallbacks, entry.developer_role) == ("serving", ("tiny",), True)
    assert entry.external == snapshot.External(
        "https://api.example.com:8443/openai",
        "gpt-4o-mini",
        (
            snapshot.ExternalKey("/etc/llmgw/secrets/openai-1.key", 2.0),
            snapshot.ExternalKey("/etc/llmgw/secrets/openai-2.key"),
        ),
    )
    models.stop(name="cloud-mini", actor="a")
    assert parts.models().models["cloud-mini"].state == "stopped"
    from fleet import selectors as fleet

    assert set(fleet.model_states()) == {"tiny"}
    with pytest.raises(Conflict, match="served outside the cluster"):
        fleet.explain_placement("cloud-mini")


@pytest.mark.django_db
def test_commands_and_pages_say_that_prompts_leave(
    tiny: dict[str, Any], capsys: pytest.CaptureFixture[str], admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told() -> dict[str, tuple[selectors.OutsideKey, ...]]:
        sentence = "key 1 was refused by its provider (401)"
        refused = selectors.OutsideKey("external:cloud-mini#1", "external_key_refused", sentence, 1.8e9, False)
        return {"cloud-mini": (refused, selectors.OutsideKey("external:cloud-mini#2"))}

    models.add_all(raws=[{**tiny, "fallbacks": ["cloud-mini"]}, yaml.safe_load(ONE)], actor="a")
    monkeypatch.setattr(selectors._asked, "outside", told)
    call_command("model", "list")
    shown = capsys.readouterr().out
    assert "external" in shown
    assert "cloud-mini: key 1 was refused by its provider (401)" in shown
    call_command("model", "show", "cloud-mini")
    shown = capsys.readouterr().out
    assert "external: its prompts leave the cluster" in shown
    assert "# external:cloud-mini#1: key 1 was refused by its provider (401) since 2027-01-15 08:00 UTC" in shown
    assert yaml.safe_load(shown)["external"]["url"] == "https://api.example.com"
    listed = admin_client.get("/admin/models").content.decode()
    assert "external" in listed
    assert "key 1 was refused" in listed
    page = admin_client.get("/admin/models/cloud-mini").content.decode()
    assert "Its prompts leave the cluster" in page
    assert "external:cloud-mini#2" in page
    assert "no usable key" not in page
    assert "cloud-mini" in admin_client.get("/admin/models/tiny").content.decode()
    monkeypatch.setattr(selectors._asked, "outside", lambda: {"cloud-mini": told()["cloud-mini"][:1]})
    assert "no usable key" in admin_client.get("/admin/models").content.decode()
    assert admin_client.get("/api/v1/models/cloud-mini").json()["keys"][0]["code"] == "external_key_refused"
