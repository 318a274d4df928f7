"""A node needs no Django: all of `agent` is imported where the base package alone is installed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

IMPORT_ALL = textwrap.dedent(
    """
    import importlib, pkgutil, sys, warnings
    warnings.simplefilter("error")
    import agent
    names = [m.name for m in pkgutil.walk_packages(agent.__path__, "agent.")]
    for name in names:
        importlib.import_module(name)
    forbidden = {"django", "celery", "channels", "rest_framework", "redis", "psycopg", "llmgw", "fleet", "gateway"}
    print(len(names), sorted(forbidden & {m.partition(".")[0] for m in sys.modules}))
    """
)

FORBID = textwrap.dedent(
    """
    import sys
    class Forbid:
        names = {
            "django", "celery", "channels", "rest_framework", "redis", "psycopg", "daphne", "uvicorn", "xllamacpp",
            "llmgw", "fleet", "catalog", "gateway", "tenancy", "mirror",
        }
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in self.names:
                raise ImportError(f"the agent imports {name}")
    sys.meta_path.insert(0, Forbid())
    """
)


def imported(python: str | Path, code: str) -> None:
    """`code` imports all of `agent`, and nothing that a node does not have."""
    done = subprocess.run([python, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    count, found = done.stdout.split(" ", 1)
    assert int(count) > 30
    assert found.strip() == "[]"


def test_the_agent_imports_nothing_of_the_control_plane() -> None:
    imported(sys.executable, FORBID + IMPORT_ALL)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_base_install_runs_the_agent(tmp_path: Path) -> None:
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    installed = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", "requirements/base.txt"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
    )
    if installed.returncode and "No matching distribution" not in installed.stderr and "HTTP" in installed.stderr:
        pytest.skip(f"the package registry cannot be reached: {installed.stderr.strip().splitlines()[-1]}")
    assert installed.returncode == 0, installed.stderr
    (site,) = (folder / "lib").glob("python3*/site-packages")
    assert not (site / "django").exists()
    (site / "llmgw.pth").write_text(f"{ROOT}\n")
    imported(python, IMPORT_ALL)
    said = subprocess.run(
        [python, "-m", "agent.node.main", "run", "--home", tmp_path / "home"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert said.returncode == 2
    assert "join a cluster first" in said.stderr
