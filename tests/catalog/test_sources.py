"""Whether weights are there is asked over real sockets, of a server that answers as the real ones do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agent.wire.reason import Reason
from catalog import sources
from catalog.core.definition import Definition, ProfileDefinition
from catalog.core.reading import read


class Hub(BaseHTTPRequestHandler):
    """A hub's and a file server's answers, by path; what it was asked is kept."""

    seen: list[tuple[str, str, str | None]] = []

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        self.seen.append((self.command, self.path, self.headers.get("Authorization")))
        here, status, location = self.path, 404, None
        if here == "/there.gguf" or here == "/stored":
            status = 200
        elif here == "/owner/repo/resolve/main/dir/q4.gguf":
            status, location = 302, "/stored"
        elif here == "/owner/gated/resolve/main/q4.gguf":
            status = 200 if self.headers.get("Authorization") == "Bearer right" else 401
        elif here == "/get-only.gguf":
            status = 405 if self.command == "HEAD" else 206
        elif here == "/round":
            status, location = 302, "/round"
        elif here == "/broken":
            status = 500
        self.send_response(status)
        if location:
            self.send_header("Location", location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    Hub.seen = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("HF_ENDPOINT", url)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    yield url
    server.shutdown()
    server.server_close()
    thread.join()


def of(source: str) -> Definition:
    shape = read({"name": "m", "source": "starter:tiny", "profiles": [{"name": "cpu", "engine": "llamacpp"}]})
    return Definition(name="m", source=source, profiles=(ProfileDefinition(run=shape.profiles[0].run),))


def problem(source: str) -> Reason | None:
    found = sources.problems([of(source)])
    return found[0] if found else None


def test_a_file_that_is_there(hub: str, tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF\x03\x00\x00\x00")
    for source in (
        f"path:{tmp_path}/a.gguf",
        f"{hub}/there.gguf",
        f"{hub}/get-only.gguf",
        "hf:owner/repo/dir/q4.gguf",
        "starter:tiny",
    ):
        assert problem(source) is None, source


def test_a_file_that_is_not_there(hub: str, tmp_path: Path) -> None:
    (tmp_path / "b.gguf").write_text("version https://git-lfs.github.com/spec/v1")
    for source, said in (
        (f"path:{tmp_path}/none.gguf", "there is no file"),
        (f"path:{tmp_path}/b.gguf", "not a GGUF file"),
        (f"path:{tmp_path}", "is a folder"),
        (f"{hub}/none.gguf", "404"),
        (f"{hub}/broken", "HTTP 500"),
        (f"{hub}/round", "HTTP 302"),
        ("hf:owner/repo/none.gguf", "404"),
        ("http://127.0.0.1:9/x.gguf", "cannot be reached"),
    ):
        found = problem(source)
        assert found is not None, source
        assert said in found.sentence
        assert found.sentence.startswith("model m: ")


def test_a_gated_file_is_asked_for_with_the_token_which_is_told_to_nobody(
    hub: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = problem("hf:owner/gated/q4.gguf")
    assert found is not None
    assert "HF_TOKEN" in found.sentence
    monkeypatch.setenv("HF_TOKEN", "right")
    assert problem("hf:owner/gated/q4.gguf") is None
    monkeypatch.setenv("HF_TOKEN", "CANARY-wrong")
    found = problem("hf:owner/gated/q4.gguf")
    assert found is not None
    assert "CANARY" not in found.sentence


def test_the_token_stays_with_the_hub(hub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "right")
    assert problem(f"{hub}/there.gguf") is None
    assert {token for _, _, token in Hub.seen} == {None}


def test_each_source_is_asked_once(hub: str) -> None:
    sources.problems([of(f"{hub}/there.gguf"), of(f"{hub}/there.gguf")])
    assert len(Hub.seen) == 1
