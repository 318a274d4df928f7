"""World files: read whole, every problem named, the examples good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from llmgw.cluster.errors import Invalid
from llmgw.rehearsal import worldfile

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = sorted((ROOT / "docs" / "rehearsal").glob("*.yaml"))
MODEL: dict[str, Any] = {
    "definition": {
        "name": "m",
        "source": "hf:pretended/m/m.gguf",
        "scaling": {"min": 1, "max": 1},
        "profiles": [{"name": "cpu", "engine": "llamacpp"}],
    }
}


def problems(**world: Any) -> str:
    with pytest.raises(Invalid) as refused:
        worldfile.read({"nodes": [{"template": "laptop"}], **world})
    return "\n".join(p.sentence for p in refused.value.problems)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_the_examples_are_good(path: Path) -> None:
    raw = yaml.safe_load(path.read_text())
    if "change" in path.name:
        pytest.skip("an overlay, not a world")
    assert worldfile.read(raw).node_ids


def test_every_problem_is_named_at_once() -> None:
    told = problems(
        nodes=[
            {"template": "h200x9"},
            {"template": "cpu", "count": 2, "id": "same"},
            {"template": "cpu", "fabric": "ib-a"},
            {"template": "cpu", "engines": ["vlm"]},
            {"template": "h200x2", "mig": [{"card": 5, "profiles": ["1g.18gb"]}, {"profiles": ["4g.71gb", "4g.71gb"]}]},
            {"template": "laptop", "id": "-bad-"},
        ],
        models=[{"definition": {"name": "m"}}, {}],
        traffic={"models": ["nobody"], "rate": 0},
        faults=[{"do": "eat"}, {"do": "hang", "model": "x"}, {"do": "cut", "nodes": ["z"], "count": 1}],
        settings={"fleet.no_such": 1},
        bond="60s",
    )
    for said in (
        "there is no template h200x9",
        "2 nodes cannot all be called same",
        "has no adapters",
        "there is no engine vlm",
        "there is no card 5",
        "take 8",
        "'-bad-' is no node id",
        "source is missing",
        "definition is missing",
        "the world has no model nobody",
        "rate must be between",
        "there is no fault eat",
        "the world has no model x",
        "the world has no node z",
        "nodes, count and share say the same thing",
        "there is no setting fleet.no_such",
        "there is no key bond; did you mean bound?",
    ):
        assert said in told, said


@pytest.mark.parametrize(
    ("world", "said"),
    [
        ({"nodes": []}, "at least one group"),
        ({"nodes": [{"template": "cpu"}, {"template": "cpu"}]}, "there is a node cpu-1 already"),
        ({"models": [MODEL, MODEL]}, "two models have one name"),
        ({"faults": [{"do": "store_restart"}]}, "store_restart needs"),
        ({"settings": {"fleet.node_lost_s": 1}}, "would be lost between two heartbeats"),
        ({"settings": [1]}, "settings must be dotted names"),
        ({"nodes": [{"template": "cpu", "count": 20_000}]}, "count must be between"),
    ],
)
def test_a_world_that_cannot_be(world: dict[str, Any], said: str) -> None:
    assert said in problems(**world)


@pytest.mark.parametrize("raw", [None, [], "text", 7])
def test_what_is_no_world(raw: Any) -> None:
    with pytest.raises(Invalid, match="a world is names with their values"):
        worldfile.read(raw)


def test_racks_addresses_and_cut_cards() -> None:
    world = worldfile.read(
        {
            "nodes": [
                {"template": "h200x8", "count": 500, "racks": 4, "fabric": "ib", "id": "h{n}"},
                {"template": "h200x2", "mig": [{"card": 1, "profiles": ["3g.71gb", "2g.35gb"]}]},
            ]
        }
    )
    nodes = world.nodes(64)
    assert len({n.address for n in nodes}) == 501
    assert {(n.facts.labels or {}).get("llmgw.io/rack") for n in nodes[:500]} == {
        "rack-1",
        "rack-2",
        "rack-3",
        "rack-4",
    }
    assert {(n.facts.labels or {})["pretended"] for n in nodes} == {"yes"}
    assert nodes[0].facts.fabrics
    cut = [c.gpu_class for c in nodes[-1].facts.gpus or ()]
    assert cut == ["h200-140g", "h200-140g-mig-3g.71gb", "h200-140g-mig-2g.35gb"]
    devices = [(n.id, c.uuid) for n in nodes for c in n.facts.gpus or ()]
    assert len({uuid for _, uuid in devices}) == len(devices)
