"""What a node tells of itself because somebody said so, or because it fetched it: fabrics, weights, exporters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from agent.node.settings import Settings, read
from agent.node.weights import Weights

TLS = {"ca": "ca.pem", "cert": "node.pem", "key": "node-key.pem"}


def settings(folder: Path, **more: object) -> Settings | list[str]:
    path = folder / "agent.yaml"
    path.write_text(yaml.safe_dump({"node_id": "n1", "server": "wss://c:7443/agent/link", "tls": TLS, **more}))
    found = read(path, {})
    return found if isinstance(found, Settings) else [p.sentence for p in found]


def test_an_operator_names_fabrics(tmp_path: Path) -> None:
    found = settings(tmp_path, fabrics={"ib-a": ["mlx5_0", "mlx5_1:1"], "ib-b": "mlx5_2"})
    assert isinstance(found, Settings)
    assert found.fabrics == {"ib-a": ("mlx5_0", "mlx5_1:1"), "ib-b": ("mlx5_2",)}


@pytest.mark.parametrize(
    ("fabrics", "said"),
    [
        ("mlx5_0", "must hold fabrics and their adapters ({ib-a: [mlx5_0, mlx5_1]}), and is 'mlx5_0'"),
        ({"ib a": ["mlx5_0"]}, "has 'ib a', and a fabric's name is letters"),
        ({"ib-a": [0]}, "has [0] on ib-a, where adapters are wanted: mlx5_0, or mlx5_0:1 for one port"),
        ({"ib-a": ["mlx5_0"], "ib-b": ["mlx5_0"]}, "puts mlx5_0 on ib-a and on ib-b: a port is on one fabric"),
    ],
)
def test_a_fabric_that_makes_no_sense_is_said(tmp_path: Path, fabrics: object, said: str) -> None:
    (problem,) = settings(tmp_path, fabrics=fabrics)  # type: ignore[misc]
    assert problem.startswith(f"fabrics in agent.yaml {said}")


def test_an_exporter_is_an_address_or_off(tmp_path: Path) -> None:
    for text, kept in ((False, "off"), ("off", "off"), ("http://10.0.0.1:9400/metrics",) * 2):
        found = settings(tmp_path, discovery={"dcgm_exporter": text})
        assert isinstance(found, Settings)
        assert found.discovery["dcgm_exporter"] == kept
    (problem,) = settings(tmp_path, discovery={"dcgm_exporter": "9400"})  # type: ignore[misc]
    assert "neither an http address nor off: '9400'" in problem


def test_weights_that_lie_whole_are_told_by_their_sources(tmp_path: Path) -> None:
    weights = Weights(tmp_path)
    assert weights.whole() == ("starter:tiny",)
    folder = tmp_path / "0123456789abcdef"
    folder.mkdir()

    def known(name: str, *sources: str, there: bool = True) -> None:
        note = {"url": "https://h/m", "sha256": "0" * 64, "size": 1, "sources": sources}
        (folder / f"{name}.json").write_text(json.dumps(note))
        if there:
            (folder / name).write_bytes(b"x")

    known("a.gguf", "hf:o/r/a.gguf", "hf:o/r/a.gguf@main")
    known("b.gguf", "hf:o/r/b.gguf", there=False)
    known("c.gguf", "https://bucket/c.gguf?signature=abc")
    (folder / "d.gguf.part").write_bytes(b"half")
    (folder / "e.gguf.json").write_text('{"url": "https://h/e", "sha256": "0", "size": 1}')
    (folder / "e.gguf").write_bytes(b"x")
    assert weights.whole() == ("hf:o/r/a.gguf", "hf:o/r/a.gguf@main", "starter:tiny")
