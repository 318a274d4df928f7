"""A stand-in for GitHub's releases, the hosts its downloads are sent on to, and an index of Python packages.

It answers as they are documented to: the API with a digest of each asset and counted questions, downloads by a
redirect to another host with ranges and an ETag, packages as JSON with the time of their upload. `cut` breaks
downloads off after so many bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


@dataclass
class Releases:
    """`assets`: {(repository, tag): {name: bytes}}; `mirror`: name to bytes; `packages`: wheel to (bytes, when)."""

    port: int = 0
    assets: dict[tuple[str, str], dict[str, bytes]] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    """Said instead of the true ones."""
    published: str = "2026-09-01T12:00:00Z"
    mirror: dict[str, bytes] = field(default_factory=dict)
    packages: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    cut: int | None = None
    slow: threading.Event | None = None
    """Downloads stop in their middle until it is set."""
    limited: bool = False
    asked: list[str] = field(default_factory=list)

    @property
    def api(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def index(self) -> str:
        return f"http://127.0.0.1:{self.port}/simple/"

    def add(self, repository: str, tag: str, name: str, data: bytes) -> None:
        self.assets.setdefault((repository, tag), {})[name] = data

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = unquote(request.path)
        self.asked.append(path)
        parts = path.strip("/").split("/")
        match parts:
            case ["repos", owner, name, "releases", "tags", tag]:
                self._release(request, f"{owner}/{name}", tag)
            case ["download", owner, name, tag, asset]:
                # GitHub sends to another host; a name of this one is another host to a client.
                request.send_response(302)
                request.send_header("Location", f"http://localhost:{self.port}/blob/{owner}/{name}/{tag}/{asset}")
                request.send_header("Content-Length", "0")
                request.end_headers()
            case ["blob", owner, name, tag, asset]:
                self._bytes(request, self.assets.get((f"{owner}/{name}", tag), {}).get(asset))
            case ["_llmgw", "engines", name]:
                self._bytes(request, self.mirror.get(name))
            case ["simple" | "_llmgw", *rest] if rest[-1:]:
                self._project(request, rest[-1])
            case ["wheels", name]:
                self._bytes(request, self.packages[name][0] if name in self.packages else None)
            case _:
                self._json(request, 404, {"message": "Not Found"})

    def _release(self, request: BaseHTTPRequestHandler, repository: str, tag: str) -> None:
        if self.limited:
            headers = {"x-ratelimit-remaining": "0", "retry-after": "41"}
            self._json(request, 403, {"message": "API rate limit exceeded"}, headers)
            return
        assets = self.assets.get((repository, tag))
        if assets is None:
            self._json(request, 404, {"message": "Not Found"})
            return
        told = [
            {
                "name": name,
                "size": len(data),
                "digest": self.digests.get(name, f"sha256:{hashlib.sha256(data).hexdigest()}"),
                "browser_download_url": f"{self.api}/download/{repository}/{tag}/{name.replace('+', '%2B')}",
            }
            for name, data in assets.items()
        ]
        self._json(request, 200, {"tag_name": tag, "published_at": self.published, "assets": told})

    def _project(self, request: BaseHTTPRequestHandler, name: str) -> None:
        files = [
            {
                "filename": wheel,
                "url": f"{self.api}/wheels/{wheel}",
                "hashes": {"sha256": hashlib.sha256(data).hexdigest()},
                "upload-time": when,
            }
            for wheel, (data, when) in self.packages.items()
            if wheel.split("-")[0].replace("_", "-") == name
        ]
        if not files:
            self._json(request, 404, {})
            return
        body = {"meta": {"api-version": "1.1"}, "name": name, "files": files}
        self._json(request, 200, body, {"Content-Type": "application/vnd.pypi.simple.v1+json"})

    def _json(
        self, request: BaseHTTPRequestHandler, status: int, body: Any, headers: Mapping[str, str] | None = None
    ) -> None:
        data = json.dumps(body).encode()
        request.send_response(status)
        for key, value in {"Content-Type": "application/json", **(headers or {})}.items():
            request.send_header(key, value)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    def _bytes(self, request: BaseHTTPRequestHandler, data: bytes | None) -> None:
        if data is None:
            self._json(request, 404, {})
            return
        tag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
        start, ranged = 0, request.headers.get("Range", "")
        if ranged.startswith("bytes=") and request.headers.get("If-Range", tag) == tag:
            start = int(ranged[6:].split("-")[0])
        if start >= len(data) and start:
            self._json(request, 416, {})
            return
        request.send_response(206 if start else 200)
        request.send_header("ETag", tag)
        request.send_header("Content-Length", str(len(data) - start))
        request.end_headers()
        part = data[start:]
        if self.slow is not None:
            half = len(part) // 2
            request.wfile.write(part[:half])
            request.wfile.flush()
            self.slow.wait(30)
            part = part[half:]
        if self.cut is not None and len(part) > self.cut:
            part = part[: self.cut]
            request.close_connection = True
        request.wfile.write(part)


@contextmanager
def serving() -> Iterator[Releases]:
    releases = Releases()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            try:
                releases.answer(self)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def do_HEAD(self) -> None:
            """Of a package: without ranges, so that it is fetched whole."""
            name = unquote(self.path).rsplit("/", 1)[-1]
            self.send_response(200 if name in releases.packages else 404)
            self.send_header("Content-Length", str(len(releases.packages.get(name, (b"", ""))[0])))
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    releases.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield releases
    finally:
        if releases.slow is not None:
            releases.slow.set()
        server.shutdown()
        server.server_close()
        thread.join(5)


def tar(files: Mapping[str, bytes | str], *, executable: tuple[str, ...] = (), pad: int = 0) -> bytes:
    """A .tar.gz; a text is a link's target. `pad` adds a file of so many bytes that do not pack."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                archive.addfile(info)
                continue
            info.size = len(content)
            info.mode = 0o755 if name in executable or name.rsplit("/", 1)[-1] in executable else 0o600
            archive.addfile(info, io.BytesIO(content))
        if pad:
            noise = hashlib.shake_256(b"pad").digest(pad)
            info = tarfile.TarInfo("padding")
            info.size = len(noise)
            archive.addfile(info, io.BytesIO(noise))
    return out.getvalue()


def wheel(name: str, version: str, files: Mapping[str, str], *, requires: tuple[str, ...] = (), scripts: str = "") -> tuple[str, bytes]:  # fmt: skip # noqa: E501
    """A pure wheel by hand: (file name, bytes)."""
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {r}\n" for r in requires)
    content = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if scripts:
        content[f"{info}/entry_points.txt"] = f"[console_scripts]\n{scripts}\n"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for path, text in content.items():
            z.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), text)
        z.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in [*content, f"{info}/RECORD"]))
    return f"{name}-{version}-py3-none-any.whl", out.getvalue()
