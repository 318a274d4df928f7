"""Racks, rows, PDUs and fabrics at the doors: what is shown, held, capped, and refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from django.core.management import call_command

from agent.wire.facts import FabricFacts, GpuFacts, PortFacts
from fleet import models, passes, selectors
from fleet.actions import nodes, places
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.errors import Invalid, NotFound
from llmgw.cluster.models import AuditEntry
from tests.fleet.agents import FACTS, GIB
from tests.fleet.rows import joined, link_is_up, tiny

pytestmark = pytest.mark.django_db


def machine(name: str, **labels: str) -> None:
    cards = tuple(
        GpuFacts(n, gpu_class="l40s-45g", memory_bytes=45 * GIB, power_w=50.0, power_limit_w=350.0) for n in range(2)
    )
    port = PortFacts("mlx5_0", 1, "infiniband", True, 200.0, subnet_manager="sm1")
    named = (FabricFacts("ib-a", ("mlx5_0",)),)
    held = ("starter:tiny",) if name == "n1" else ()
    joined(name, facts=replace(FACTS, gpus=cards, rdma_ports=(port,), fabrics=named, weights=held))
    nodes.label(node_id=name, changes={f"llmgw.io/{k}": v for k, v in labels.items()}, actor="test")


@pytest.fixture(autouse=True)
def _cluster(db: None) -> None:
    link_is_up()
    machine("n1", rack="r1", row="12", room="hall-b", site="sto1", pdu="a,b")
    machine("n2", rack="r2", row="12", pdu="b")


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    call_command(*words)
    return capsys.readouterr().out


def test_each_rack_row_and_pdu_with_what_it_draws() -> None:
    tiny(gpus=2, gpu_class="l40s-45g")
    passes.run()
    found = {(p["kind"], p["name"]): p for p in selectors.places()}
    assert list(found) == [
        ("rack", "r1"),
        ("rack", "r2"),
        ("row", "12"),
        ("room", "hall-b"),
        ("site", "sto1"),
        ("pdu", "a"),
        ("pdu", "b"),
    ]
    assert (found["row", "12"]["within"], found["room", "hall-b"]["within"]) == ("sto1/hall-b", "sto1")
    rack = found["rack", "r1"]
    assert (rack["draws_w"], rack["may_draw_w"], rack["within"]) == (100, 1200, "sto1/hall-b/12")
    assert (rack["nodes"], rack["models"]) == (["n1"], ["tiny"])
    assert found["pdu", "a"]["may_draw_w"] == 600
    assert found["pdu", "b"]["may_draw_w"] == 600 + 600
    assert found["row", "12"]["may_draw_w"] == 1200 + 600


def test_a_held_rack_takes_nothing_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("facility", "hold", "rack", "r1", "--note", "new cooling")
    assert "held: new cooling" in shown(capsys, "facility", "list")
    assert AuditEntry.objects.filter(action="facility.hold", subject="rack r1").exists()
    tiny()
    passes.run()
    assert models.Shard.objects.get().node.node_id == "n2"
    told = selectors.explain_placement("tiny")
    reasons = next(c["reasons"] for c in told["candidates"] if c["node"] == "n1")
    assert reasons[0]["sentence"] == "n1 is in rack r1, which is held: new cooling"
    assert reasons[0]["command"] == "llmgw facility release rack r1"
    call_command("facility", "release", "rack", "r1")
    assert cluster_settings.current()[1]["facility"]["racks"] == {}


@pytest.mark.parametrize(("kind", "name"), [("room", "hall-b"), ("site", "sto1")])
def test_a_room_and_a_site_are_held_capped_and_released_like_a_rack(kind: str, name: str) -> None:
    call_command("facility", "hold", kind, name)
    tiny(gpus=2, gpu_class="l40s-45g", minimum=2)
    passes.run()
    assert models.Shard.objects.get().node.node_id == "n2"
    reason = selectors.explain_placement("tiny")["candidates"][0]["reasons"][0]
    assert (reason["code"], reason["command"]) == ("place_held", f"llmgw facility release {kind} {name}")
    call_command("facility", "release", kind, name)
    call_command("facility", "cap", kind, name, "1000")
    passes.run()
    assert (
        models.Replica.objects.get(state="pending").reason
        == "no node can take it: 1 × GPUs taken, 1 × above a power cap"
    )
    call_command("facility", "cap", kind, name, "none")
    passes.run()
    assert set(models.Shard.objects.values_list("node__node_id", flat=True)) == {"n1", "n2"}


def test_a_cap_is_kept_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    for rack in ("r1", "r2"):
        call_command("facility", "cap", "rack", rack, "1000")
    assert "1.0 kW" in shown(capsys, "facility", "list")
    tiny(gpus=2, gpu_class="l40s-45g")
    passes.run()
    row = models.Replica.objects.get()
    assert (row.state, row.reason) == ("pending", "no node can take it: 2 × above a power cap")
    reason = selectors.explain_placement("tiny")["candidates"][0]["reasons"][0]
    assert reason["sentence"] == "rack r1 of n1 may draw 1.0 kW, and with 600 W more could come to 1.2 kW"
    tiny(gpus=3, gpu_class="l40s-45g")
    told = [r["code"] for r in selectors.explain_placement("tiny")["candidates"][0]["reasons"]]
    assert "power_cap" not in told, "nothing that it has not got would draw more"
    tiny(gpus=2, gpu_class="l40s-45g")
    call_command("facility", "cap", "rack", "r1", "none")
    passes.run()
    assert models.Replica.objects.get().state == "starting"


def test_what_nobody_labelled_is_refused() -> None:
    with pytest.raises(NotFound, match="no node is labelled with the rack r9; there are: r1, r2"):
        places.hold(kind="rack", name="r9", actor="test")
    with pytest.raises(Invalid, match="watts from 1 on"):
        places.cap(kind="rack", name="r1", watts=0, actor="test")


def test_nodes_are_listed_with_where_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert "sto1/hall-b/12/r1 (a, b)" in shown(capsys, "node", "list")
    one = json.loads(shown(capsys, "node", "list", "--domain", "rack:r2", "--json"))
    assert [n["node"] for n in one] == ["n2"]
    both = json.loads(shown(capsys, "node", "list", "--domain", "pdu:b", "--json"))
    assert [n["node"] for n in both] == ["n1", "n2"]
    with pytest.raises(SystemExit):
        call_command("node", "list", "--domain", "floor:3")


def test_fabrics_with_what_they_hold(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, "fabric", "list")
    assert "ib-a" in out
    assert "starter:tiny on 1 of 2" in out
    assert "0 of 4     2 of 2" in out
    tiny(gpus=1, gpu_class="l40s-45g")
    passes.run()
    assert "1 of 4     1 of 2" in shown(capsys, "fabric", "list")
    found = json.loads(shown(capsys, "fabric", "show", "ib-a", "--json"))
    assert [n["node"] for n in found["nodes"]] == ["n1", "n2"]
    assert len(found["whole"]) == 1
    assert found["nodes"][0]["adapters"] == ["mlx5_0:1"]
    with pytest.raises(SystemExit):
        call_command("fabric", "show", "ib-z")


def test_the_api_has_the_same(admin_client: Any) -> None:
    found = admin_client.get("/api/v1/facility").json()
    assert found[0]["name"] == "r1"
    held = admin_client.post("/api/v1/facility/rack:r1/hold", {"note": "why"}, content_type="application/json")
    assert held.json()["held"] is True
    assert admin_client.post("/api/v1/facility/rack:r1/release").json()["held"] is False
    capped = admin_client.post("/api/v1/facility/pdu:b/cap", {"watts": 9000}, content_type="application/json")
    assert capped.json()["power_cap_w"] == 9000
    assert admin_client.get("/api/v1/facility/r1").status_code == 404
    assert admin_client.get("/api/v1/fabrics").json()["fabrics"][0]["weights"] == {"starter:tiny": 1}
    assert admin_client.get("/api/v1/fabrics/ib-a").json()["kind"] == "infiniband"
