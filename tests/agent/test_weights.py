"""Weights from a real HTTP server that breaks off, resumes, redirects, lies and refuses."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from agent import starter
from agent.node.weights import Weights, WeightsError
from agent.wire.shard import Source

DATA = os.urandom(3_000_000)
SHA256 = hashlib.sha256(DATA).hexdigest()


class Hub(ThreadingHTTPServer):
    """Answers as a hub does: `/owner/repo/resolve/REV/FILE` is sent on to where the bytes are."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.data = DATA
        self.tag = '"v1"'
        self.named: str | None = SHA256
        self.break_after: int | None = None
        """Bytes after which the next answer breaks off; once."""
        self.status = 200
        self.seen: list[tuple[str, dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        hub = self.server
        hub.seen.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
        if "/resolve/" in self.path and hub.status == 200:
            self.send_response(302)
            self.send_header("location", f"http://localhost:{hub.server_address[1]}/bytes")
            if hub.named:
                self.send_header("x-linked-etag", f'"{hub.named}"')
            self.end_headers()
            return
        if hub.status != 200:
            self.send_error(hub.status)
            return
        start = 0
        if "Range" in self.headers and self.headers.get("If-Range") == hub.tag:
            start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
            if start >= len(hub.data):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("content-range", f"bytes {start}-{len(hub.data) - 1}/{len(hub.data)}")
        else:
            self.send_response(200)
        body = hub.data[start:]
        self.send_header("content-length", str(len(body)))
        self.send_header("etag", hub.tag)
        self.end_headers()
        if hub.break_after is not None:
            body, hub.break_after = body[: hub.break_after], None
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[Hub]:
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def weights(tmp_path: Path, hub: Hub) -> Weights:
    return Weights(tmp_path / "weights", hub=hub.url, token="hub-token", retry_s=0.01)


async def fetch(weights: Weights, url: str, sha256: str | None = None, seen: list[float | None] | None = None) -> Path:
    return await weights.fetch(Source(url, sha256=sha256), (lambda p: None) if seen is None else seen.append)


async def test_a_file_is_fetched_once_with_progress(weights: Weights, hub: Hub) -> None:
    progress: list[float | None] = []
    path = await fetch(weights, f"{hub.url}/m.gguf", SHA256, progress)
    assert path.read_bytes() == DATA
    assert progress[-1] == 1.0
    assert progress == sorted(p for p in progress if p is not None)
    assert await fetch(weights, f"{hub.url}/m.gguf", SHA256) == path
    assert len(hub.seen) == 1
    (listed,) = weights.listed()
    assert (listed["sha256"], listed["size_bytes"], listed["path"]) == (SHA256, len(DATA), str(path))


async def test_what_nobody_wants_is_deleted_and_what_a_person_put_there_is_not(weights: Weights, hub: Hub) -> None:
    path = await fetch(weights, f"{hub.url}/m.gguf", SHA256)
    own = weights.folder / "own.gguf"
    own.write_bytes(b"mine")
    assert not weights.drop(f"path:{own}")
    assert not weights.drop("starter:tiny")
    assert not weights.drop("hf:a/b/c.gguf")
    assert weights.there(f"{hub.url}/m.gguf") == path
    assert weights.drop(f"{hub.url}/m.gguf")
    assert not path.exists()
    assert weights.whole() == ("starter:tiny",)
    assert not weights.drop(f"{hub.url}/m.gguf")
    assert own.exists()
    assert (await fetch(weights, f"{hub.url}/m.gguf", SHA256)).read_bytes() == DATA


async def test_it_resumes_where_it_broke_off(weights: Weights, hub: Hub) -> None:
    hub.break_after = 1_500_000
    path = await fetch(weights, f"{hub.url}/m.gguf", SHA256)
    assert path.read_bytes() == DATA
    first, second = hub.seen
    assert "range" not in first[1]
    assert int(second[1]["range"].removeprefix("bytes=").rstrip("-")) > 0


async def test_a_file_that_changed_in_between_is_not_stitched(weights: Weights, hub: Hub) -> None:
    hub.break_after = 1_500_000
    changed = os.urandom(2_000_000)

    def change(part: float | None) -> None:
        hub.data, hub.tag = changed, '"v2"'

    path = await weights.fetch(Source(f"{hub.url}/m.gguf"), change)
    assert path.read_bytes() == changed


async def test_it_resumes_after_the_agent_died(weights: Weights, hub: Hub) -> None:
    hub.break_after = 2_000_000
    started = asyncio.Event()
    task = asyncio.create_task(weights.fetch(Source(f"{hub.url}/m.gguf"), lambda p: started.set()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [p.name for p in weights.folder.glob("*/m.gguf")] == []  # nobody sees a part
    path = await fetch(weights, f"{hub.url}/m.gguf", SHA256)
    assert path.read_bytes() == DATA
    assert "range" in hub.seen[-1][1]


async def test_a_wrong_digest_is_said_and_nothing_is_kept(weights: Weights, hub: Hub) -> None:
    with pytest.raises(WeightsError, match=f"has the SHA-256 {SHA256}, where {'0' * 64} was wanted"):
        await fetch(weights, f"{hub.url}/m.gguf", "0" * 64)
    assert list(weights.folder.glob("*/[!.]*")) == []


async def test_the_hubs_own_digest_is_checked_and_its_token_stays_with_it(weights: Weights, hub: Hub) -> None:
    path = await fetch(weights, "hf:owner/repo/m.gguf@v1")
    assert path.read_bytes() == DATA
    (asked, headers), (bytes_, sent_on) = hub.seen
    assert (asked, headers["authorization"]) == ("/owner/repo/resolve/v1/m.gguf", "Bearer hub-token")
    assert bytes_ == "/bytes"
    assert "authorization" not in sent_on
    hub.named = "f" * 64
    with pytest.raises(WeightsError, match="has the SHA-256"):
        await fetch(weights, "hf:owner/repo/m.gguf@v2")


@pytest.mark.parametrize(
    ("status", "said"), [(401, "the token was refused"), (403, "access is not granted"), (404, "no such file")]
)
async def test_a_refusal_is_final_and_said(weights: Weights, hub: Hub, status: int, said: str) -> None:
    hub.status = status
    with pytest.raises(WeightsError, match=said) as caught:
        await fetch(weights, "hf:owner/repo/m.gguf")
    assert len(hub.seen) == 1
    assert "hub-token" not in str(caught.value)


async def test_trouble_at_the_server_is_tried_again_and_then_said(weights: Weights, hub: Hub) -> None:
    hub.status = 503
    with pytest.raises(WeightsError, match="could not be fetched in 5 tries: it was answered with 503"):
        await fetch(weights, f"{hub.url}/m.gguf?token=secret")
    assert len(hub.seen) == 5


async def test_a_secret_in_an_address_is_not_shown(weights: Weights, hub: Hub) -> None:
    hub.status = 404
    with pytest.raises(WeightsError) as caught:
        await fetch(weights, hub.url.replace("http://", "http://user:secret@") + "/m.gguf?token=secret")
    assert "secret" not in str(caught.value)


async def test_two_agents_fetch_one_file_once(weights: Weights, hub: Hub) -> None:
    other = Weights(weights.folder, hub=hub.url)
    paths = await asyncio.gather(fetch(weights, f"{hub.url}/m.gguf"), fetch(other, f"{hub.url}/m.gguf"))
    assert paths[0] == paths[1]
    assert len(hub.seen) == 1


async def test_a_file_that_lies_here_is_used_where_it_lies(weights: Weights, tmp_path: Path) -> None:
    weights.folder.mkdir()
    file = tmp_path / "m.gguf"
    file.write_bytes(DATA)
    assert await fetch(weights, f"path:{file}") == file
    assert await fetch(weights, str(file), SHA256) == file
    with pytest.raises(WeightsError, match="was wanted"):
        await fetch(weights, str(file), "0" * 64)
    with pytest.raises(WeightsError, match="does not exist on this node"):
        await fetch(weights, f"path:{tmp_path}/none.gguf")


async def test_the_starter_ships(weights: Weights) -> None:
    assert await fetch(weights, "starter:tiny") == starter.path("tiny")
    with pytest.raises(WeightsError, match="no starter model is called 'huge'"):
        await fetch(weights, "starter:huge")


async def test_a_full_disk_is_said_before_anything_is_fetched(
    weights: Weights, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil
    from types import SimpleNamespace

    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=1, used=1, free=1000))
    with pytest.raises(WeightsError, match=r"3000000 bytes are still to be fetched, and .* has 1000 left"):
        await fetch(weights, f"{hub.url}/m.gguf")
