"""Compiling the walk: mypyc makes C of the typed sources, the machine's compiler makes one library of it.

Built in a folder of its own and renamed when all of it is there, so an edge finds a whole build or none. Takes a minute
or two, most of it the compiler's, which works on as many files at once as there are cores.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from gateway.compiling import walk
from gateway.compiling.loading import LIST

LEVEL = "2"
"""Of the compiler's optimisation."""
PACKAGES = "sudo apt-get install gcc python3-dev"
Say = Callable[[str], None]


class Extension(Protocol):
    """setuptools' word for a library to be made."""

    name: str
    sources: list[str]
    include_dirs: list[str]
    extra_compile_args: list[str]


class CannotCompile(Exception):
    """Its words say what is missing, or what the compiler said."""


def build(where: Path, say: Say = lambda _: None) -> Path:
    """The build's folder under `where`, made if it is not there; older ones are removed. Raises `CannotCompile`."""
    target = where / walk.digest()
    if (target / LIST).is_file():
        say("these sources are compiled already")
        return target
    compiler = _compiler()
    where.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=where) as folder:
        making = Path(folder)
        say(f"{len(walk.MODULES)} modules to C")
        extensions = _to_c(making / "c")
        files = _to_machine_code(extensions, making, compiler, say)
        shutil.rmtree(making / "c")
        shutil.rmtree(making / "objects")
        (making / LIST).write_text(json.dumps(files, indent=1))
        with contextlib.suppress(OSError):  # another was as quick, and has made the same
            making.rename(target)
            making.mkdir()  # for its context to remove
    for other in where.iterdir():
        if other != target and (other / LIST).is_file():
            shutil.rmtree(other)
    return target


def _compiler() -> str:
    name = os.environ.get("CC") or "cc"
    found = shutil.which(name)
    if found is None:
        raise CannotCompile(f"a C compiler is needed and '{name}' is not on the PATH: {PACKAGES}")
    headers = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not headers.is_file():
        raise CannotCompile(f"Python's own headers are needed and {headers} is not there: {PACKAGES}")
    return found


def _to_c(folder: Path) -> list[Extension]:
    try:
        from mypyc.build import mypycify
    except ImportError:
        raise CannotCompile("mypyc is needed: `make compiled` installs it, or pip install 'llmgw[compile]'") from None
    options = ["--config-file=", "--ignore-missing-imports", f"--cache-dir={os.devnull}"]
    sources = [str(walk.file_of(module)) for module in walk.MODULES]
    before = Path.cwd()
    os.chdir(walk.ROOT)  # mypy names modules by where they lie under it
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what it remarks on is no part of anybody's answer
            made: list[Extension] = mypycify(
                [*options, *sources], opt_level=LEVEL, debug_level="0", target_dir=str(folder)
            )
    except SystemExit as e:
        raise CannotCompile(f"mypyc does not take these sources: {e.code}") from None
    finally:
        os.chdir(before)
    return made


def _to_machine_code(extensions: list[Extension], folder: Path, compiler: str, say: Say) -> dict[str, str]:
    """The files of the modules under `folder`, by name."""
    (folder / "objects").mkdir()
    include = [sysconfig.get_paths()["include"], *(d for e in extensions for d in e.include_dirs)]
    flags = [*(f"-I{d}" for d in dict.fromkeys(include)), f"-O{LEVEL}", "-g0", "-fPIC", "-w"]
    flags += [flag for flag in extensions[0].extra_compile_args if flag.startswith("-D")]
    sources = [(e.name, source) for e in extensions for source in e.sources]
    objects: dict[str, list[Path]] = {}

    def compiled(number: int) -> Path:
        to = folder / "objects" / f"{number}.o"
        _run([compiler, *flags, "-c", sources[number][1], "-o", str(to)])
        return to

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for number, made in enumerate(pool.map(compiled, range(len(sources)))):
            objects.setdefault(sources[number][0], []).append(made)
            say(f"{number + 1} of {len(sources)} files to machine code")
    files = {}
    for name, parts in objects.items():
        files[name] = name + walk.suffix()
        _run([compiler, "-shared", *map(str, parts), "-o", str(folder / files[name])])
    return files


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotCompile(f"{Path(command[0]).name} failed: {done.stderr.strip()[-600:]}")
