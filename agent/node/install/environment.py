"""A Python environment by uv: resolved as the index stood at a moment, every file by its SHA-256.

uv comes as engines do: one release file, checked against GitHub's digest (or the control plane's). It is pinned here
and nowhere installed: a node without Python engines never fetches it.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from agent.core.archive import BadArchive
from agent.node.install.failures import Failed
from agent.node.install.fetching import Fetching, Progress
from agent.node.install.folders import Folders, remove
from agent.node.install.running import Runner, cleaned
from agent.node.install.unpack import unpack
from agent.plans.steps import Environment, KnownFile, Plan, ReleaseFile

UV = "0.13.9"
LIST = "llmgw-requirements.txt"
_OF_TORCH = ("torch", "torchvision", "torchaudio", "torchao", "triton", "pytorch-triton")
_A_DAY_S = 86400.0
_LONG_S = 7200.0
_TAIL = 400
_PLAIN = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Builder:
    folders: Folders
    fetching: Fetching
    runner: Runner
    uv: str = ""
    """An executable that the operator named; empty: the release's."""

    def build(self, plan: Plan, step: Environment, making: Path, progress: Progress) -> None:
        """`making` becomes the environment. Raises `Failed`, OSError."""
        uv = self.uv or str(self._uv(progress))
        sources = self.fetching.sources
        env = {
            **cleaned(os.environ),
            "UV_CACHE_DIR": str(self.folders.cache),
            "UV_PYTHON_INSTALL_DIR": str(self.folders.root / ".python"),
            "UV_NO_CONFIG": "1",
            "UV_NO_PROGRESS": "1",
            "NO_COLOR": "1",
        }
        if sources.index or sources.mirror:
            env["UV_DEFAULT_INDEX"] = sources.index or f"{sources.mirror.rstrip('/')}/_llmgw/simple/"
        if sources.mirror:
            env["UV_PYTHON_INSTALL_MIRROR"] = f"{sources.mirror.rstrip('/')}/_llmgw/python"
        making.rmdir()
        progress("making the environment")
        base = ("--no-managed-python", "--python", sources.python) if sources.python else ("--managed-python", "--python", step.python)  # fmt: skip # noqa: E501
        self._run(uv, ("venv", "--relocatable", *base, str(making)), env, "the environment could not be made")
        making.chmod(0o755)
        listed = making / LIST
        self._list(plan, step, listed, uv, env, progress)
        count = sum(1 for line in listed.read_text().splitlines() if line[:1].isalnum())
        progress(f"installing {count} packages")
        self._run(
            uv,
            (
                *("pip", "install", "--python", str(making / "bin" / "python"), "--require-hashes"),
                *("--compile-bytecode", "--no-deps", "-r", str(listed), *self._torch(step)),
            ),
            env,
            "its packages could not be installed",
        )

    def _list(
        self, plan: Plan, step: Environment, listed: Path, uv: str, env: Mapping[str, str], progress: Progress
    ) -> None:
        """Every file that belongs to it, with its digest."""
        if self.fetching.sources.mirror:
            # An index over plain HTTP could answer with any digest: here the list itself is held to one.
            name = f"{plan.engine}-{plan.name}-{platform.machine()}-requirements.txt"
            found = self.fetching.mirrored(name, f"{plan.engine} {plan.version}")
            listed.write_bytes(self.fetching.fetch(KnownFile(found.url, found.sha256), progress).read_bytes())
            return
        wheels = [self.fetching.fetch(f, progress) for f in step.wheels]
        published = self.fetching.published(step.repository, step.tag_name)
        progress(f"resolving {', '.join(step.requirements) or ', '.join(w.name for w in wheels)}")
        before = datetime.fromtimestamp((published or 0.0) + _A_DAY_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        asked = listed.with_name(".requirements.in")
        named = [f"{_project(w.name)} @ {w.absolute().as_uri()}" for w in wheels]
        asked.write_text("\n".join([*step.requirements, *named]) + "\n")
        self._run(
            uv,
            (
                *("pip", "compile", str(asked), "-o", str(listed), "--generate-hashes", "--no-header"),
                *("--no-annotate", "--python", str(listed.parent / "bin" / "python"), "--exclude-newer", before),
                *("--emit-index-annotation", *self._torch(step), *self._undated(step)),
            ),
            env,
            "what it is made of could not be resolved",
        )
        asked.unlink()

    def _torch(self, step: Environment) -> tuple[str, ...]:
        return ("--torch-backend", step.torch) if step.torch else ()

    def _undated(self, step: Environment) -> tuple[str, ...]:
        """PyTorch's own index does not say when a file came, and uv would take none of them. vLLM pins them all."""
        return (
            tuple(a for name in _OF_TORCH for a in ("--exclude-newer-package", f"{name}=false")) if step.torch else ()
        )

    def _uv(self, progress: Progress) -> Path:
        folder = self.folders.root / f".uv-{UV}"
        found = sorted(folder.glob("**/uv"))
        if found:
            return found[0]
        file = ReleaseFile("astral-sh/uv", UV, rf"uv-{platform.machine()}-unknown-linux-gnu\.tar\.gz")
        archive = self.fetching.fetch(file, progress)
        making = folder.with_name(f"{folder.name}.making")
        remove(making)
        making.mkdir(mode=0o755)
        try:
            unpack(archive, making)
        except BadArchive as e:
            raise Failed("bad_archive", f"{archive.name} is refused: {e}") from None
        making.rename(folder)
        return next(iter(sorted(folder.glob("**/uv"))))

    def _run(self, uv: str, arguments: Sequence[str], env: Mapping[str, str], otherwise: str) -> None:
        try:
            done = subprocess.run(
                [uv, *arguments],
                env=dict(env),
                cwd=self.folders.root,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_LONG_S,
                check=False,
                pass_fds=self.runner.holds,
            )
        except subprocess.TimeoutExpired:
            raise Failed("uv_failed", f"{otherwise}: uv took longer than {_LONG_S / 3600:g} hours") from None
        except OSError as e:
            raise Failed("uv_failed", f"{otherwise}: uv cannot be run: {e}", passed=True) from None
        if done.returncode:
            said = " ".join(_PLAIN.sub("", done.stderr.decode(errors="replace")).split())
            raise Failed("uv_failed", f"{otherwise}: {said[-_TAIL:]}")


def _project(wheel: str) -> str:
    return wheel.split("-", 1)[0]
