"""Peers are measured where they can be installed, and left out with a sentence where not."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import peers
from bench.contenders import CannotStart


def test_one_that_cannot_be_installed_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(peers, "CACHE", tmp_path / "file")
    said: list[str] = []
    with pytest.raises(CannotStart, match="sglang cannot be installed"):
        peers.PEERS["sglang"].interpreter(said.append)
    assert "installing sglang-router" in said[0]


@pytest.mark.parametrize("name", peers.PEERS)
def test_each_is_started_in_front_of_all_engines(tmp_path: Path, name: str) -> None:
    engines = ("http://127.0.0.1:1001", "http://127.0.0.1:1002")
    argv = peers.PEERS[name].argv(Path("/env/bin/python"), 4000, engines, tmp_path)
    said = " ".join(argv) + "".join(path.read_text() for path in tmp_path.iterdir())
    assert "4000" in said
    assert all(engine in said for engine in engines)
