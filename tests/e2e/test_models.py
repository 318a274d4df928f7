"""Models that cannot run say why; a second model runs beside the first."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import ROOT, Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def _definition(folder: Path, name: str, source: str, **profile: Any) -> str:
    import yaml

    path = folder / f"{name}.yaml"
    document = {
        "name": name,
        "source": source,
        "context_length": 512,
        "scaling": {"min": 1},
        "profiles": [{"name": "cpu", "engine": "llamacpp", "min_memory_gb": 0.1, **profile}],
    }
    if profile.pop("embeddings", False):
        document["capabilities"] = {"embeddings": True}
        document["profiles"][0].pop("embeddings")
    path.write_text(yaml.safe_dump(document))
    return str(path)


def _why(cluster: Cluster, model: str) -> str:
    return " ".join(str(r.get("reason") or "") for r in cluster.command("replica", "list") if r["model"] == model)


@pytest.mark.parametrize(
    ("kind", "words"),
    [("missing", "does not exist on this node"), ("truncated", "is truncated"), ("text", "is no GGUF file")],
)
def test_bad_weights_are_told_in_a_sentence(cluster: Cluster, tmp_path: Path, kind: str, words: str) -> None:
    weights = tmp_path / "weights.gguf"
    whole = ROOT / "agent" / "starter" / "tiny.gguf"
    if kind == "truncated":
        weights.write_bytes(whole.read_bytes()[:300_000])
    elif kind == "text":
        weights.write_text("these are no weights\n" * 100)
    name = f"bad-{kind}"
    if kind == "missing":
        refused = cluster.command("model", "add", "-f", _definition(tmp_path, name, str(weights)), code=2)
        assert "there is no file" in refused["error"]["message"]
    cluster.command("model", "add", "--no-source-check", "-f", _definition(tmp_path, name, str(weights)))
    try:
        cluster.until(lambda: words.lower() in _why(cluster, name).lower(), 20, "a reason")
        answer = cluster.post("/v1/chat/completions", {"model": name, "messages": [{"role": "user", "content": "hi"}]})
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) > 0
        assert words.lower() in answer.json()["error"]["message"].lower()
    finally:
        cluster.command("model", "remove", name, "--yes")


def test_a_second_model_for_embeddings(cluster: Cluster, tmp_path: Path) -> None:
    weights = tmp_path / "e.gguf"
    shutil.copy(ROOT / "agent" / "starter" / "tiny.gguf", weights)
    cluster.command(
        "model",
        "add",
        "-f",
        _definition(tmp_path, "vectors", str(weights), embeddings=True, args=["--pooling", "mean"]),
    )
    try:
        cluster.until(
            lambda: cluster.post("/v1/embeddings", {"model": "vectors", "input": "hello"}).status_code == 200, 30
        )
        found = cluster.client().embeddings.create(model="vectors", input=["hello", "world"])
        assert len(found.data) == 2
        assert len(found.data[0].embedding) == 128
    finally:
        cluster.command("model", "remove", "vectors", "--yes")
    cluster.until(lambda: cluster.post("/v1/embeddings", {"model": "vectors", "input": "hello"}).status_code == 404, 10)


def test_a_model_is_stopped_and_started(cluster: Cluster) -> None:
    cluster.command("model", "stop", "tiny")
    try:
        cluster.until(lambda: cluster.chat().status_code == 503, 10)
        cluster.until(lambda: "stopped" in cluster.chat().json()["error"]["message"], 10)
    finally:
        cluster.command("model", "start", "tiny")
    cluster.until(cluster.serves, 30)
