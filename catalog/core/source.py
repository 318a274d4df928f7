"""Where weights may come from, as people write it and as nodes are told it. Pure.

`path:/…` or a bare absolute path (on the nodes), `https://…`, `http://…` with a sha256 (a mirror of one's own),
`hf:owner/repo/file[@revision]`, `starter:tiny`. Every node's agent reads what is let in here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from agent.wire.reason import Reason

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_FILE = r"[A-Za-z0-9._-]+"
_HF = re.compile(rf"(?P<repo>{_PART}/{_PART})/(?P<file>(?:{_FILE}/)*{_FILE})(?:@(?P<revision>[A-Za-z0-9._/-]+))?")
_REPOSITORY = re.compile(rf"(?:hf:)?{_PART}/{_PART}")
STARTERS = ("tiny",)
"""Weights that ship with llmgw."""


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a Hugging Face repository."""

    repository: str
    file: str
    revision: str = "main"


def normal(written: str) -> str | Reason:
    """The source as the wire carries it, or why it is none."""
    if written.startswith("/"):
        written = f"path:{written}"
    scheme, colon, rest = written.partition(":")
    if colon and scheme == "path":
        return _path(rest)
    if colon and scheme in ("https", "http"):
        return _address(written)
    if colon and scheme == "starter":
        if rest in STARTERS:
            return written
        return _bad(f"source {written}: the starters that ship with llmgw are {', '.join(STARTERS)}")
    if _REPOSITORY.fullmatch(written):
        return _bad(
            f"source {written} names a whole repository; name the file: hf:{written.removeprefix('hf:')}/FILE.gguf"
        )
    if colon and scheme == "hf":
        return written if hub_file(written) else _bad(f"source {written} must be like hf:owner/repository/file.gguf")
    return _bad(
        f"source {written!r} must be an absolute path, path:/…, https://…, hf:owner/repository/file, or starter:tiny"
    )


def hub_file(source: str) -> HubFile | None:
    """What an `hf:` source names; None for any other, and for one that leaves its repository."""
    match = _HF.fullmatch(source.removeprefix("hf:")) if source.startswith("hf:") else None
    if match is None or {".", ".."} & {*match["file"].split("/"), *(match["revision"] or "").split("/")}:
        return None
    return HubFile(match["repo"], match["file"], match["revision"] or "main")


def _path(path: str) -> str | Reason:
    if not path.startswith("/") or ".." in path.split("/") or any(ord(c) < 32 for c in path):
        return _bad(f"source path:{path} must be an absolute path without .. in it, as it is on the nodes")
    return f"path:{path}"


def _address(url: str) -> str | Reason:
    try:
        parts = urlsplit(url)
        host, user = parts.hostname, parts.username or parts.password
    except ValueError:
        host, user = None, None
    if not host or any(c.isspace() for c in url):
        return _bad(f"source {url!r} is not an address")
    if user:
        return _bad(f"source {parts.scheme}://{host}/… has a name or password in it, which every page would show")
    if not parts.path.rsplit("/", 1)[-1]:
        return _bad(f"source {url} names no file")
    return url


def unproven(source: str, sha256: str | None) -> Reason | None:
    """Why weights from `source` could be other ones than were meant: an address in clear without their sha256."""
    if sha256 is None and source.startswith("http:"):
        return _bad(f"source {source} is not encrypted, and anybody on the way could change it: give its sha256 too")
    return None


def _bad(sentence: str) -> Reason:
    return Reason("bad_source", sentence)
