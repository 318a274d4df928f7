"""Where weights come from, read from a source's text. Pure.

`path:/models/m.gguf` (or a bare path), `https://host/m.gguf`, `http://…`, `hf:owner/repo/file.gguf[@revision]`,
`starter:tiny`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

HUB = "https://huggingface.co"
GITHUB = "https://api.github.com"
"""Where engines' releases are asked about."""
_NAME = re.compile(r"[A-Za-z0-9._-]+")


class BadSource(ValueError):
    """The sentence says what was found and what is wanted."""


@dataclass(frozen=True, slots=True)
class LocalFile:
    path: str


@dataclass(frozen=True, slots=True)
class Starter:
    name: str


@dataclass(frozen=True, slots=True)
class Download:
    """`folder` and `name` are its place under the weights folder: the same for the same address."""

    url: str
    folder: str
    name: str
    hub: bool = False
    """The hub's token may be sent to it."""

    @property
    def shown(self) -> str:
        """Without what may be secret in an address."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"


def read(text: str, hub: str = HUB) -> LocalFile | Starter | Download:
    """Raises `BadSource`."""
    scheme, colon, rest = text.partition(":")
    if text.startswith("/"):
        return LocalFile(text)
    if scheme == "path" and colon:
        if not rest.startswith("/"):
            raise BadSource(f"path: needs an absolute path, and has {rest[:200]!r}")
        return LocalFile(rest)
    if scheme == "starter" and colon:
        return Starter(rest)
    if scheme in ("http", "https") and colon:
        return _address(text)
    if scheme == "hf" and colon:
        return _hub_file(rest, hub)
    raise BadSource(
        f"weights cannot come from {text[:200]!r}: path:/…, https://…, hf:owner/repo/file[@revision] or starter:tiny"
    )


def may_hold_secret(text: str) -> bool:
    """An address with a name and password, or with a query, as signed ones have."""
    if not text.startswith(("http:", "https:")):
        return False
    try:
        parts = urlsplit(text)
    except ValueError:
        return True
    return bool(parts.query or parts.username or parts.password)


def _address(text: str) -> Download:
    try:
        parts = urlsplit(text)
    except ValueError as e:
        raise BadSource(f"{text[:200]!r} is no address: {e}") from None
    name = parts.path.rsplit("/", 1)[-1]
    if not parts.hostname or not name:
        raise BadSource(f"an address needs a host and a file, and {text[:200]!r} has none")
    return Download(text, _folder(text), _plain(name))


def _hub_file(rest: str, hub: str) -> Download:
    path, _, revision = rest.partition("@")
    parts = path.split("/")
    if len(parts) < 3 or not all(_NAME.fullmatch(p) and p not in (".", "..") for p in parts):
        raise BadSource(f"hf: needs owner/repo/file[@revision], and has {rest[:200]!r}")
    revision = revision or "main"
    url = f"{hub.rstrip('/')}/{parts[0]}/{parts[1]}/resolve/{quote(revision, safe='')}/{quote('/'.join(parts[2:]))}"
    return Download(url, _folder(f"hf:{path}@{revision}"), _plain(parts[-1]), hub=True)


def _folder(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(name: str) -> str:
    return ("".join(c if _NAME.fullmatch(c) else "_" for c in name).lstrip(".") or "model")[:120]
