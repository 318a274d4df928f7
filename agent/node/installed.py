"""Which engines this node has, and what starts each of them.

One entry an engine. What agent.yaml names comes first and alone; then what was installed here and seen to run; for
llama.cpp then our launcher's wheel. Nothing is used because it happens to be on PATH.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from agent.node.install import libraries
from agent.node.install.failures import Failed
from agent.wire.facts import EngineFacts

_VERSION = re.compile(r"version:\s*(\S+)")
_ANY_VERSION = re.compile(r"\d+(\.\d+)+\S*")
_ASK_S = 10.0
_ASK_PYTHON_S = 30.0
_TRTLLM_FROM = (1, 3)
"""1.2 has no `--served_model_name`, and publishes none of the queue's figures."""
PACKAGES = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt_llm"}
"""The package that makes an environment the engine's."""


def engines(
    configured: Mapping[str, str],
    vectors: tuple[str, ...] | None,
    arch: str | None,
    *,
    disabled: Collection[str] = (),
    kept: Sequence[EngineFacts] = (),
) -> tuple[EngineFacts, ...]:
    """`kept`: what the installer tells of its own."""
    return laid(named(configured), wheel(vectors, arch), disabled=disabled, kept=kept)


def laid(
    named: Sequence[EngineFacts],
    wheel: EngineFacts | None,
    *,
    disabled: Collection[str] = (),
    kept: Sequence[EngineFacts] = (),
) -> tuple[EngineFacts, ...]:
    """One entry an engine, of all that was found."""
    found = {e.name: e for e in named}
    for engine in kept:
        found.setdefault(engine.name, engine)
    mine = found.get("llamacpp")
    if wheel is not None and (mine is None or (mine not in named and not _usable(mine))):
        found["llamacpp"] = replace(wheel, installing=mine.installing) if mine is not None and _usable(wheel) else wheel
    return tuple(found[name] for name in sorted(found) if name not in disabled)


def named(configured: Mapping[str, str]) -> tuple[EngineFacts, ...]:
    """What agent.yaml names, each asked what it is."""
    found = []
    for name, path in configured.items():
        if name == "llamacpp":
            found.append(_of_wheel(path, None, None) if Path(path).name.startswith("python") else _executable(path))
        else:
            found.append(_environment(name, path))
    return tuple(found)


def wheel(vectors: tuple[str, ...] | None, arch: str | None) -> EngineFacts | None:
    """Our launcher's, where it is installed beside the agent; pip installs it also where it cannot be loaded."""
    spec = importlib.util.find_spec("xllamacpp")
    if spec is None or spec.origin is None:
        return None
    found = _of_wheel(sys.executable, vectors, arch)
    if found.problem is not None:
        return found
    try:
        libraries.look(Path(spec.origin).parent, ("*.so", "*.so.*"))
    except Failed as e:
        advice = f"; {e.reason.command}" if e.reason.command else ""
        return replace(found, problem=f"{e.reason.sentence}{advice}")
    return found


def import_from() -> str | None:
    """The folder that holds the `agent` package, where it is not a part of this interpreter's own packages."""
    folder = Path(__file__).resolve().parents[2]
    return None if folder.name in ("site-packages", "dist-packages") else str(folder)


def _usable(engine: EngineFacts) -> bool:
    return engine.path is not None and engine.problem is None


def _of_wheel(interpreter: str, vectors: tuple[str, ...] | None, arch: str | None) -> EngineFacts:
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
    said, problem = _said([path, "--version"], _ASK_S)
    match = _VERSION.search(said)
    version = match.group(1) if match and problem is None else None
    return EngineFacts("llamacpp", version=version, build="llama-server", path=path, problem=problem)


def _environment(name: str, path: str) -> EngineFacts:
    """vLLM by its command or an interpreter, the others by an interpreter. The package's own record is read: to ask
    the command would load PyTorch."""
    package = PACKAGES.get(name, name)
    python = path if Path(path).name.startswith("python") else str(Path(path).with_name("python"))
    if not Path(python).exists():
        said, problem = _said([path, "--version"], _ASK_PYTHON_S)
        match = _ANY_VERSION.search(said)
        return EngineFacts(name, version=match[0] if match and problem is None else None, path=path, problem=problem)
    asks = f"import importlib.metadata as m; print('version:', m.version({package!r}))"
    said, problem = _said([python, "-c", asks], _ASK_PYTHON_S)
    if problem is not None and "PackageNotFoundError" in problem:
        problem = f"{python} has no package {package}"
    match = _VERSION.search(said)
    version = match[1] if match and problem is None else None
    if name == "trtllm" and version is not None and _numbers(version) < _TRTLLM_FROM:
        problem = f"TensorRT-LLM 1.3 or newer is needed, and {python} has {version}"
    return EngineFacts(name, version=version, build="named", path=path, problem=problem)


def _said(argv: list[str], timeout_s: float) -> tuple[str, str | None]:
    """What it says, and what is wrong with it."""
    try:
        asked = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=timeout_s, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        return "", f"{argv[0]} cannot be run: {e}"
    said = asked.stdout + asked.stderr
    if asked.returncode == 0:
        return said, None
    last = (said.strip().splitlines() or ["it says nothing"])[-1][:200]
    return said, f"{argv[0]} ends with status {asked.returncode}: {last}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version)[:2])
