"""`llmgw-agent engine-check`: whether an installed engine takes the flags that llmgw builds for it, and which cards it
sees. Starts the engine's program to ask it; serves nothing."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass

from agent.engines import ENGINES
from agent.node.installed import import_from
from agent.plans import flags
from agent.wire.reason import Reason

_ASK_S = 120.0
_VERSION = re.compile(r"version:?\s+(\S+)")
_DEVICES = re.compile(r"(?m)^\s*((?:CUDA|Vulkan|ROCm|SYCL|Metal)\d+: .+)$")


@dataclass(frozen=True, slots=True)
class Checked:
    """`unknown`: flags that llmgw builds and it does not name. `problem`: why it could not be asked."""

    engine: str
    bin: str
    tested_with: str = ""
    version: str | None = None
    flags: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    devices: tuple[str, ...] | None = None
    problem: Reason | None = None


def check(engine: str, path: str) -> Checked:
    known = ENGINES.get(engine)
    if known is None:
        names = ", ".join(ENGINES)
        return Checked(engine, path, problem=Reason("no_such_engine", f"there is no engine {engine[:40]!r}: {names}"))
    tested = known.capabilities.tested_with
    if not os.access(path, os.X_OK) or os.path.isdir(path):
        return Checked(
            engine, path, tested, problem=Reason("no_program", f"{path} is not there, or not to be executed")
        )
    said, last = "", ""
    for asked in flags.asks(engine, path):
        said = _said(asked)
        last = (said.strip().splitlines() or ["nothing"])[-1][:300]
        if flags.tells_flags(said):
            break
    else:
        return Checked(
            engine, path, tested, problem=Reason("says_nothing", f"{path} does not say which flags it takes: {last}")
        )
    devices = None
    version = None
    if engine == "llamacpp" and not os.path.basename(path).startswith("python"):
        devices = tuple(_DEVICES.findall(_said((path, "--list-devices"))))
        found = _VERSION.search(_said((path, "--version")))
        version = found[1] if found else None
    return Checked(engine, path, tested, version, flags.built(engine, path), flags.unknown(engine, said, path), devices)


def _said(argv: tuple[str, ...]) -> str:
    """On both streams, whatever it ends with."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    folder = import_from()
    # llama.cpp's launcher is ours, and refuses to say anything without a key.
    env |= {"PYTHONPATH": folder or "", "LLAMA_API_KEY": "for a question", "LC_ALL": "C", "COLUMNS": "200"}
    try:
        done = subprocess.run(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_ASK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        return str(e)
    return done.stdout.decode(errors="replace")
