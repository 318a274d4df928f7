"""A folder of wheels from which a machine without a registry installs the agent: ours as it stands and its needs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
NEWER = "99.0.0"


def build(folder: Path) -> Path:
    """`folder`, filled: the pinned wheels of the base, llama.cpp's server, and this checkout's own."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    pinned = folder / "requirements.txt"
    folder.mkdir(parents=True)
    base = (ROOT / "requirements/base.txt").read_text()
    engine = _block((ROOT / "requirements/up.txt").read_text(), "xllamacpp")
    pinned.write_text(f"{base}\n{engine}")
    wanted = ("--require-hashes", "--only-binary", ":all:", "-r", str(pinned), "-d", str(folder))
    subprocess.run([*pip, "download", *wanted], check=True)
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT)], check=True)
    return folder


def build_newer(folder: Path) -> Path:
    """A wheel of the same code under a later version: what an upgrade installs."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    with tempfile.TemporaryDirectory() as scratch:
        for name in filter(None, listed.split("\0")):
            target = Path(scratch) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
        project = Path(scratch) / "pyproject.toml"
        project.write_text(project.read_text().replace('version = "0.1.0"', f'version = "{NEWER}"', 1))
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
        subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), scratch], check=True)
    return folder


def _block(requirements: str, name: str) -> str:
    """The lines of one package, with its hashes."""
    lines = requirements.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"{name}=="))
    end = next((i for i in range(start + 1, len(lines)) if not lines[i].startswith(" ")), len(lines))
    return "\n".join(line for line in lines[start:end] if not line.strip().startswith("#"))
