"""Engines of nodes as administrators see and choose them: settings, overrides, builds, commands, API."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone
from rest_framework.test import APIClient

from fleet import selectors
from fleet.actions import nodes
from fleet.core.agents import About, told, versions
from fleet.models import Node
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.core import settings as core
from llmgw.cluster.core.sections import BadSettings
from llmgw.cluster.errors import Conflict, Invalid, NotFound
from llmgw.cluster.models import AuditEntry
from tenancy.models import Person

CARD = {"index": 0, "gpu_class": "a10g-22g", "compute_capability": "8.6"}
LAYERS = {
    "engines": {"vllm": "0.30.0", "sglang": "0.5.20"},
    "engine_overrides": [
        {"gpu_class": "a10g", "engines": {"vllm": "0.29.0"}},
        {"labels": {"role": "gguf"}, "engines": {"vllm": "", "sglang": ""}},
        {"id": "n7", "labels": {"role": "gguf"}, "engines": {"llamacpp": "b11000"}},
    ],
}


@pytest.mark.parametrize(
    ("node", "about", "expected"),
    [
        ("n1", About(), ("b10991", "0.30.0", "0.5.20")),
        ("n1", About(frozenset({"a10g-22g"})), ("b10991", "0.29.0", "0.5.20")),
        ("n1", About(frozenset({"a10g"})), ("b10991", "0.29.0", "0.5.20")),
        ("n1", About(frozenset({"a100-80g"})), ("b10991", "0.30.0", "0.5.20")),
        ("n1", About(frozenset({"a10g-22g"}), {"role": "gguf"}), ("b10991", "", "")),
        ("n7", About(labels={"role": "gguf"}), ("b11000", "", "")),
        ("n7", About(labels={"role": "other"}), ("b10991", "0.30.0", "0.5.20")),
    ],
)
def test_overrides_are_laid_over_in_order(node: str, about: About, expected: tuple[str, ...]) -> None:
    found = versions(core.read(LAYERS), node, about)
    assert (found["llamacpp"], found["vllm"], found["sglang"]) == expected


def test_nothing_is_said_of_engines_before_the_node_has_told_of_itself() -> None:
    assert "engines" not in told(core.read({}), "n1").settings
    offline = {"mirror": "http://10.0.0.5:8081", "sha256": {"x.tar.gz": "0" * 64}}
    settings = core.read({"offline": offline})
    assert told(settings, "n1", About(builds={"vllm": "cu129"})).settings == {
        "labels": {},
        "engines": {"llamacpp": "b10991", "vllm": "0.30.0", "sglang": ""},
        "engine_builds": {"vllm": "cu129"},
        "offline": {"index": "", **offline},
    }


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"engines": {"vllm": "latest"}}, "engines: vllm is installed as a version of vLLM, like 0.30.0, and not"),
        ({"engines": {"llamacpp": "../b1"}}, "engines: llamacpp is installed as a release of llama.cpp, like b10991"),
        ({"engines": {"trtllm": "1.3"}}, "there is no setting engines.trtllm"),
        ({"engine_overrides": [{"engines": {"vllm": ""}}]}, "engine_overrides[0] picks no nodes"),
        ({"engine_overrides": [{"id": "n1", "engines": {}}]}, "engine_overrides[0] says no version"),
        ({"engine_overrides": [{"id": "n1"}]}, "engines"),
        ({"engine_overrides": [{"id": "n1", "engines": {"ollama": "1"}}]}, "nodes install llamacpp, vllm, sglang"),
        ({"engine_overrides": [{"class": "x", "engines": {"vllm": ""}}]}, "no setting engine_overrides[0].class"),
        ({"offline": {"mirror": "ftp://x"}}, "offline.mirror"),
        ({"offline": {"sha256": {"x": "abc"}}}, "offline.sha256"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(document: dict[str, Any], says: str) -> None:
    with pytest.raises(BadSettings) as refused:
        core.read(document)
    assert says in str(refused.value)


def node(name: str = "n1", *, engines: list[dict[str, Any]] | None = None, gpus: Any = ()) -> Node:
    facts = {"arch": "x86_64", "gpus": list(gpus), "engines": engines or []}
    return Node.objects.create(node_id=name, facts=facts, reported_at=timezone.now())


def run(*argv: str, capsys: pytest.CaptureFixture[str]) -> Any:
    call_command("engine", *argv, "--json")
    return json.loads(capsys.readouterr().out)


@pytest.mark.django_db
def test_every_node_and_engine_with_its_state(capsys: pytest.CaptureFixture[str]) -> None:
    words = "downloading llama-b10991-bin-ubuntu-x64.tar.gz (16 MB), 40 %"
    node("n1", engines=[{"name": "llamacpp", "problem": f"installing: {words}", "installing": words}])
    node(
        "n2",
        gpus=[CARD],
        engines=[
            {"name": "llamacpp", "version": "b10990", "build": "vulkan", "path": "/e/x", "installing": "unpacking x"},
            {"name": "trtllm", "version": "1.3.0", "path": "/p", "problem": "its interpreter is gone"},
        ],
    )
    rows = {(r["node"], r["engine"]): r for r in run("list", capsys=capsys)}
    assert set(rows) == {("n1", "llamacpp"), ("n2", "llamacpp"), ("n2", "vllm"), ("n2", "trtllm")}
    first = rows["n1", "llamacpp"]
    assert (first["state"], first["problem"], first["installing"]) == ("installing", None, words)
    assert first["tested_with"] == "real"
    serving = rows["n2", "llamacpp"]
    assert (serving["state"], serving["installing"], serving["wanted"]) == ("ready", "unpacking x", "b10991")
    assert rows["n2", "vllm"]["state"] == "absent"
    assert rows["n2", "vllm"]["builds"] == ["auto", "cu13", "cu129", "none"]
    assert (rows["n2", "trtllm"]["state"], rows["n2", "trtllm"]["builds"]) == ("problem", [])
    assert "stand-in" in rows["n2", "trtllm"]["tested_with"]
    assert [r["engine"] for r in run("list", "vllm", capsys=capsys)] == ["vllm"]
    call_command("engine", "list")
    shown = capsys.readouterr().out
    assert f"installing: {words}" in shown
    assert "meanwhile: unpacking x" in shown


@pytest.mark.django_db
def test_a_build_is_chosen_kept_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    row = node(gpus=[CARD])
    assert run("build", "n1", "vllm", "cu129", capsys=capsys)["chosen"] == {"vllm": "cu129"}
    row.refresh_from_db()
    assert (row.engine_builds, row.generation) == ({"vllm": "cu129"}, 1)
    assert AuditEntry.objects.filter(action="node.engine_build", subject="n1").count() == 1
    nodes.engine_build(node_id="n1", engine="vllm", build="cu129", actor="x")
    row.refresh_from_db()
    assert row.generation == 1  # said again, it changes nothing
    assert run("build", "n1", "vllm", "auto", capsys=capsys)["chosen"] == {}
    with pytest.raises(Invalid, match="vllm has the builds auto, cu13, cu129, none, and not 'cu99'"):
        nodes.engine_build(node_id="n1", engine="vllm", build="cu99", actor="x")
    with pytest.raises(Invalid, match=r"not trtllm: name it in the node's agent\.yaml"):
        nodes.engine_build(node_id="n1", engine="trtllm", build="auto", actor="x")
    row.refresh_from_db()
    row.facts = {**row.facts, "installs": False}
    row.save()
    with pytest.raises(Conflict, match="n1 installs no engines"):
        nodes.engine_build(node_id="n1", engine="vllm", build="none", actor="x")
    assert selectors.engines() == []
    with pytest.raises(NotFound):
        nodes.engine_build(node_id="n9", engine="vllm", build="auto", actor="x")


@pytest.mark.django_db
def test_an_engine_that_does_not_take_our_flags_is_named_with_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run("check", "llamacpp", "--bin", sys.executable, capsys=capsys)
    assert "--n-gpu-layers" in found["flags"]
    assert found["unknown"] == []
    old = tmp_path / "llama-server"
    known = " ".join(f for f in found["flags"] if f not in ("--cache-ram", "--jinja"))
    old.write_text(f'#!/bin/sh\ncase "$1" in --help) echo "usage: {known}";; *) echo "  CUDA0: x (1 MiB)";; esac\n')
    old.chmod(0o755)
    with pytest.raises(SystemExit) as ended:
        call_command("engine-check", "llamacpp", "--bin", str(old), "--json")
    assert ended.value.code == 1
    said = json.loads(capsys.readouterr().out)["error"]["message"]
    assert said == f"{old} does not know --jinja, --cache-ram, which llmgw builds for llamacpp"
    with pytest.raises(SystemExit) as ended:
        call_command("engine", "check", "vllm", "--bin", str(tmp_path / "nothing"))
    assert ended.value.code == 1
    assert "is not there, or not to be executed" in capsys.readouterr().err


@pytest.mark.django_db
def test_one_machines_own_agent_installs_nothing_unless_it_is_asked_to(tmp_path: Path) -> None:
    import yaml

    from fleet.actions import certificates

    path = tmp_path / "agent.yaml"
    certificates.enrol_local(node_id="n1", home=tmp_path, server_url="wss://127.0.0.1:7443/agent/link", actor="up")
    assert yaml.safe_load(path.read_text())["engines"] == {"install": False}
    path.write_text(
        yaml.safe_dump({**yaml.safe_load(path.read_text()), "engines": {"llamacpp": "/x", "install": True}})
    )
    certificates.enrol_local(node_id="n1", home=tmp_path, server_url="wss://127.0.0.1:7443/agent/link", actor="up")
    assert yaml.safe_load(path.read_text())["engines"] == {"install": True, "llamacpp": "/x"}


@pytest.mark.django_db
def test_a_node_page_row_has_what_the_list_has() -> None:
    node(gpus=[CARD])
    (llamacpp, vllm) = selectors.node("n1")["engine_details"]
    assert (llamacpp["name"], vllm["name"], vllm["chosen"]) == ("llamacpp", "vllm", "auto")
    assert cluster_settings.in_force().engines.vllm == vllm["wanted"]


@pytest.mark.django_db
def test_the_api_and_the_page_choose_too(client: Any) -> None:
    person = Person.objects.create_superuser("root@example.com", "a long password")
    api = APIClient()
    api.force_authenticate(person)
    node(gpus=[CARD])
    made = api.post("/api/v1/nodes/n1/engine-build", {"engine": "vllm", "build": "cu13"}, format="json")
    assert made.status_code == 200
    assert Node.objects.get().engine_builds == {"vllm": "cu13"}
    bad = api.post("/api/v1/nodes/n1/engine-build", {"engine": "vllm", "build": "cu1"}, format="json")
    assert (bad.status_code, bad.json()["error"]["code"]) == (422, "bad_engine_build")
    rows = api.get("/api/v1/engines?engine=vllm").json()["results"]
    assert [(r["node"], r["chosen"], r["state"]) for r in rows] == [("n1", "cu13", "absent")]
    client.force_login(person)
    page = client.get("/admin/nodes/n1").content.decode()
    assert '<option value="cu13" selected' in page
    assert (
        client.post("/admin/nodes/n1/change", {"what": "engine", "engine": "vllm", "build": "none"}).status_code == 302
    )
    assert Node.objects.get().engine_builds == {"vllm": "none"}
