"""Which engines this node has, and what starts each of them."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from agent.wire.facts import EngineFacts

_VERSION = re.compile(r"version:\s*(\S+)")
_ASK_S = 10.0


def engines(
    configured: Mapping[str, str], vectors: tuple[str, ...] | None, arch: str | None
) -> tuple[EngineFacts, ...]:
    """One entry an engine: what the settings name, else our launcher's wheel, else an executable on PATH."""
    found = _llamacpp(configured.get("llamacpp"), vectors, arch)
    return () if found is None else (found,)


def import_from() -> str | None:
    """The folder that holds the `agent` package, where it is not a part of this interpreter's own packages."""
    folder = Path(__file__).resolve().parents[2]
    return None if folder.name in ("site-packages", "dist-packages") else str(folder)


def _llamacpp(path: str | None, vectors: tuple[str, ...] | None, arch: str | None) -> EngineFacts | None:
    if path is not None:
        return _wheel(path, vectors, arch) if Path(path).name.startswith("python") else _executable(path)
    if importlib.util.find_spec("xllamacpp") is not None:
        return _wheel(sys.executable, vectors, arch)
    on_path = shutil.which("llama-server")
    return None if on_path is None else _executable(on_path)


def _wheel(interpreter: str, vectors: tuple[str, ...] | None, arch: str | None) -> EngineFacts:
    problem = None
    if arch == "x86_64" and vectors is not None and "avx2" not in vectors:
        problem = "the xllamacpp wheel needs a CPU with AVX2, and this one has none"
    version = None
    if interpreter == sys.executable:
        try:
            version = metadata.version("xllamacpp")
        except metadata.PackageNotFoundError:
            problem = problem or f"xllamacpp is not installed for {interpreter}; pip install xllamacpp"
    return EngineFacts("llamacpp", version=version, build="xllamacpp", path=interpreter, problem=problem)


def _executable(path: str) -> EngineFacts:
    try:
        asked = subprocess.run(
            [path, "--version"], capture_output=True, text=True, errors="replace", timeout=_ASK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        return EngineFacts("llamacpp", build="llama-server", path=path, problem=f"{path} cannot be run: {e}")
    said = asked.stdout + asked.stderr
    match = _VERSION.search(said)
    if asked.returncode != 0:
        last = (said.strip().splitlines() or ["it says nothing"])[-1][:200]
        return EngineFacts(
            "llamacpp", build="llama-server", path=path, problem=f"{path} ends with status {asked.returncode}: {last}"
        )
    return EngineFacts("llamacpp", version=match.group(1) if match else None, build="llama-server", path=path)
