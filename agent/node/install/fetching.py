"""The files that a plan names, whole and checked: by GitHub's word over TLS, or the control plane's where a mirror
serves them. A mirror is never asked what a file should be."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from agent.core.source import GITHUB
from agent.node.home import write_atomically
from agent.node.install.failures import Failed
from agent.node.weights import Weights, WeightsError
from agent.plans.steps import File, KnownFile, ReleaseFile
from agent.wire.shard import Source

_TIMEOUT_S = 30.0
_TOLD_FOR_S = 3600.0
"""What GitHub said of a release is asked again after this long: it counts questions."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Sources:
    """`mirror` and `sha256` (file name to digest) as the control plane told them; without a mirror GitHub's API."""

    github: str = GITHUB
    mirror: str = ""
    index: str = ""
    """Of Python packages; empty: uv's own default."""
    sha256: dict[str, str] = field(default_factory=dict)
    python: str = ""
    """The interpreter that environments are built on; empty: one that uv brings."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file, where it is to be had."""

    name: str
    url: str
    sha256: str
    size_bytes: int | None = None


Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Fetching:
    folder: Path
    sources: Sources
    retry_s: float = 1.0

    def fetch(self, file: File, progress: Progress) -> Path:
        """The whole file, under its own name. Resumes what broke off. Raises `Failed`."""
        found = self.locate(file)
        size = f" ({found.size_bytes / 1e6:.0f} MB)" if found.size_bytes else ""
        last = -1

        def share(part: float | None) -> None:
            nonlocal last
            percent = -1 if part is None else int(part * 20) * 5
            if percent != last:
                last = percent
                progress(f"downloading {found.name}{size}{'' if percent < 0 else f', {percent} %'}")

        progress(f"downloading {found.name}{size}")
        weights = Weights(self.folder, retry_s=self.retry_s)
        try:
            path = asyncio.run(weights.fetch(Source(found.url, found.sha256, found.size_bytes), share))
        except WeightsError as e:
            raise Failed("not_fetched", str(e)) from None
        named = path.with_name(found.name)  # an address writes a wheel's `+` otherwise, and its name is its version
        if named != path and not named.exists():
            named.hardlink_to(path)
        return named

    def locate(self, file: File) -> Found:
        """Raises `Failed`."""
        match file:
            case KnownFile(url=url, sha256=sha256, size_bytes=size):
                name = url.split("?", 1)[0].rsplit("/", 1)[-1]
                return Found(name, self._mirrored(name) if self.sources.mirror else url, sha256, size)
            case ReleaseFile() if self.sources.mirror:
                return self._of_mirror(file)
            case ReleaseFile():
                return self._of_release(file)

    def published(self, repository: str, tag: str) -> float | None:
        """When a release was published (Unix seconds); None where a mirror hides it. Raises `Failed`."""
        if self.sources.mirror:
            return None
        from datetime import datetime

        told = self._release(repository, tag).get("published_at")
        try:
            return datetime.fromisoformat(str(told)).timestamp()
        except ValueError:
            raise Failed("bad_release", f"GitHub does not say when {repository} {tag} was published") from None

    def known(self, name: str) -> str | None:
        """The digest that the control plane told for a file on the mirror."""
        return self.sources.sha256.get(name)

    def mirrored(self, name: str, what: str) -> Found:
        """A file of the mirror by its name. Raises `Failed`."""
        digest = self.known(name)
        if digest is None:
            raise self._not_carried(what, name)
        return Found(name, self._mirrored(name), digest)

    def _of_mirror(self, file: ReleaseFile) -> Found:
        pattern = re.compile(file.pattern)
        names = sorted(n for n in self.sources.sha256 if pattern.fullmatch(n))
        if not names:
            raise self._not_carried(f"{file.repository} {file.tag_name}", _readable(file.pattern))
        return Found(names[-1], self._mirrored(names[-1]), self.sources.sha256[names[-1]])

    def _not_carried(self, what: str, name: str) -> Failed:
        return Failed(
            "not_on_mirror",
            f"the control plane tells no SHA-256 of {name} ({what}), so it is not taken from the mirror",
            "put the file on the mirror and its digest into the setting offline.sha256",
            passed=True,
        )

    def _mirrored(self, name: str) -> str:
        return f"{self.sources.mirror.rstrip('/')}/_llmgw/engines/{quote(name)}"

    def _of_release(self, file: ReleaseFile) -> Found:
        assets = self._release(file.repository, file.tag_name).get("assets")
        pattern = re.compile(file.pattern)
        named = {
            str(a.get("name")): a
            for a in (assets if isinstance(assets, list) else ())
            if isinstance(a, dict) and pattern.fullmatch(str(a.get("name")))
        }
        if not named:
            raise Failed(
                "no_such_build",
                f"{file.repository} {file.tag_name} has no file {_readable(file.pattern)}",
                passed=True,
            )
        asset = named[max(named)]
        digest = str(asset.get("digest") or "").removeprefix("sha256:").lower()
        if not _SHA256.fullmatch(digest):
            raise Failed(
                "no_digest", f"GitHub publishes no SHA-256 of {max(named)}, so it is not installed", passed=True
            )
        size = asset.get("size")
        return Found(
            max(named), str(asset.get("browser_download_url") or ""), digest, size if isinstance(size, int) else None
        )

    def _release(self, repository: str, tag: str) -> Mapping[str, Any]:
        note = self.folder / f"release-{re.sub(r'[^A-Za-z0-9._-]', '_', f'{repository}-{tag}')}.json"
        try:
            if time.time() - note.stat().st_mtime < _TOLD_FOR_S:
                kept: dict[str, Any] = msgspec.json.decode(note.read_bytes(), type=dict)
                return kept
        except (OSError, msgspec.MsgspecError):
            pass
        body = self._ask(f"{self.sources.github.rstrip('/')}/repos/{repository}/releases/tags/{quote(tag)}", f"{repository} {tag}")  # fmt: skip # noqa: E501
        try:
            told: dict[str, Any] = msgspec.json.decode(body, type=dict)
        except msgspec.MsgspecError:
            raise Failed("bad_release", f"GitHub's answer about {repository} {tag} cannot be read") from None
        write_atomically(note, body)
        return told

    def _ask(self, url: str, what: str) -> bytes:
        import httpx

        headers = {"Accept": "application/vnd.github+json", "User-Agent": "llmgw-agent"}
        try:
            answer = httpx.get(url, headers=headers, timeout=_TIMEOUT_S, follow_redirects=True)
        except httpx.HTTPError as e:
            raise Failed("github_away", f"GitHub cannot be asked about {what}: {type(e).__name__}: {e}") from None
        if answer.status_code == 200:
            return answer.content
        if answer.status_code == 404:
            raise Failed("no_such_release", f"there is no release {what}", "llmgw config get engines", passed=True)
        wait_s = _wait_s(answer.headers)
        if answer.status_code in (403, 429) and wait_s is not None:
            raise Failed(
                "github_limit", f"GitHub answers no more questions for {wait_s:.0f} s (about {what})", wait_s=wait_s
            )
        raise Failed("github_away", f"GitHub answered {answer.status_code} about {what}")


def _wait_s(headers: Mapping[str, str]) -> float | None:
    after = headers.get("retry-after", "")
    if after.isdigit():
        return float(after)
    reset = headers.get("x-ratelimit-reset", "")
    if headers.get("x-ratelimit-remaining") == "0" and reset.isdigit():
        return max(1.0, float(reset) - time.time())
    return None


def _readable(pattern: str) -> str:
    """A pattern as people write names."""
    return re.sub(r"\\d\+|\\w\*", "*", pattern).replace("(tar\\.gz|zip)", "tar.gz").replace("\\", "")
