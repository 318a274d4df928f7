"""Whether programs and libraries find what they need on this machine, told by the library's name before anything is
started: a backend that lacks one is left out by its engine without a word."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from functools import cache
from mmap import ACCESS_READ, mmap
from pathlib import Path

from agent.core.elf import Needs, NotElf, is_elf, needs, older
from agent.node import tools
from agent.node.install.failures import Failed

PACKAGES = {
    "libgomp.so.1": "libgomp1",
    "libvulkan.so.1": "libvulkan1",
    "libcurl.so.4": "libcurl4",
    "libssl.so.3": "libssl3",
    "libcrypto.so.3": "libssl3",
    "libstdc++.so.6": "libstdc++6",
    "libnuma.so.1": "libnuma1",
}
"""Debian's and Ubuntu's, of those that release builds ask for."""
_ELSEWHERE = (
    (re.compile(r"lib(cuda|nvidia-ml)\.so"), "it comes with the NVIDIA driver"),
    (re.compile(r"lib(cudart|cublas|cublasLt|nvrtc|cufft)\.so\.(\d+)"), r"it is part of the CUDA \2 runtime"),
)
_FOLDERS = ("/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib")
_CACHED = re.compile(r"^\s+(\S+) \([^)]*\) => (\S+)$", re.MULTILINE)
_LDCONFIG_S = 10.0


def look(folder: Path, patterns: Iterable[str]) -> None:
    """Raises `Failed`, with every library that is missing."""
    missing: dict[str, str] = {}
    seen: set[Path] = set()
    queue = [path for pattern in patterns for path in found(folder, pattern)]
    while queue:
        path = queue.pop()
        real = Path(os.path.realpath(path))
        if real in seen:
            continue
        seen.add(real)
        wants = _needs(real)
        if wants is None:
            continue
        if wants.machine != platform.machine():
            raise Failed(
                "wrong_machine", f"{path.name} is for {wants.machine}, and this is {platform.machine()}", passed=True
            )
        has = _glibc()
        if has is not None and wants.glibc is not None and older(has, wants.glibc):
            raise Failed(
                "old_glibc",
                f"{path.name} needs glibc {wants.glibc}, and this system has {has}: it was built for a newer one",
                "choose an older version for this node in engine_overrides, or upgrade its system",
                passed=True,
            )
        for name in wants.libraries:
            where = _where(name, wants, real.parent)
            if where is None:
                missing.setdefault(name, path.name)
            elif where.is_relative_to(os.path.realpath(folder)):
                queue.append(where)
    if missing:
        raise _lacking(missing)


def found(folder: Path, pattern: str) -> Iterator[Path]:
    """Files anywhere below `folder` whose name matches."""
    for where, _, names in os.walk(folder):
        for name in sorted(names):
            if fnmatch(name, pattern):
                yield Path(where) / name


def _lacking(missing: Mapping[str, str]) -> Failed:
    parts, packages = [], []
    for name, wanted_by in sorted(missing.items()):
        package = PACKAGES.get(name)
        if package is not None:
            packages.append(package)
        from_ = f"package {package}" if package else _elsewhere(name)
        parts.append(f"{name}, which {wanted_by} needs{f' ({from_})' if from_ else ''}")
    command = f"apt-get install -y {' '.join(dict.fromkeys(packages))}" if packages else ""
    return Failed("missing_library", f"this machine lacks {'; '.join(parts)}", command, passed=True)


def _elsewhere(name: str) -> str:
    for pattern, said in _ELSEWHERE:
        match = pattern.match(name)
        if match is not None:
            return match.expand(said)
    return ""


def _where(name: str, wants: Needs, origin: Path) -> Path | None:
    if "/" in name:
        path = Path(name)
        return path if path.exists() else None
    folders = [p.replace("${ORIGIN}", "$ORIGIN").replace("$ORIGIN", str(origin)) for p in wants.search]
    for folder in folders:
        path = Path(folder) / name
        if path.is_file():
            return Path(os.path.realpath(path))
    cached = _system().get(name)
    if cached is not None and cached.exists():
        return cached
    for folder in (*_FOLDERS, *(f"{f}/{platform.machine()}-linux-gnu" for f in _FOLDERS[:2])):
        path = Path(folder) / name
        if path.is_file():
            return path
    return None


@cache
def _system() -> dict[str, Path]:
    said = tools.said(["/sbin/ldconfig", "-p"], _LDCONFIG_S) or tools.said(["ldconfig", "-p"], _LDCONFIG_S) or ""
    table: dict[str, Path] = {}
    for name, path in _CACHED.findall(said):
        table.setdefault(name, Path(path))
    return table


def _glibc() -> str | None:
    try:
        said = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (OSError, ValueError):
        return None
    return said.removeprefix("glibc ").strip() or None


def _needs(path: Path) -> Needs | None:
    """None for a file that is no program or library (a script)."""
    with path.open("rb") as f:
        if not is_elf(f.read(4)):
            return None
        with mmap(f.fileno(), 0, access=ACCESS_READ) as data:
            try:
                return needs(data)
            except NotElf as e:
                raise Failed("damaged_file", f"{path.name} cannot be read: {e}", passed=True) from None


def forget() -> None:
    """What the system has, as it was looked up."""
    _system.cache_clear()
