"""Taking the compiled modules in place of their sources, where they were built from these very sources."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from gateway.compiling import walk

LIST = "modules.json"
"""In a build's folder: the files of its modules by their names, relative to it."""


class Form(NamedTuple):
    """How the walk of a request runs in a process."""

    build: Path | None
    """The compiled one's folder."""
    sentence: str

    @property
    def compiled(self) -> bool:
        return self.build is not None


def form(where: Path | None) -> Form:
    """Which one a process takes that starts now. `where`: the folder of builds; None: it is switched off."""
    if where is None:
        return Form(None, "interpreted: compiled forms are switched off (`compiled: off`)")
    build = where / walk.digest()
    if (build / LIST).is_file():
        return Form(build, f"compiled: {len(walk.MODULES)} modules from {build.name}")
    others = any(where.glob(f"*/{LIST}"))
    state = "what was compiled here is of other sources" if others else "it has not been compiled here"
    return Form(None, f"interpreted: {state} (`llmgw edge compile`)")


def use(where: Path | None) -> Form:
    """Takes it. To be called before any of the modules is imported. Raises `ImportError` where it is not, and `OSError`
    where a build cannot be read; a missing one is no error, for the sources do the same."""
    taken = form(where)
    if taken.build is None:
        return taken
    early = [module for module in walk.MODULES if module in sys.modules]
    if early:
        raise ImportError(f"the compiled form must come before its modules, and {early[0]} is imported already")
    files = {name: taken.build / file for name, file in json.loads((taken.build / LIST).read_bytes()).items()}
    sys.meta_path.insert(0, _Finder(files))
    return taken


class _Finder(MetaPathFinder):
    def __init__(self, files: dict[str, Path]) -> None:
        self._files = files

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self._files.get(fullname)
        if file is None:
            return None
        return spec_from_file_location(fullname, file, loader=ExtensionFileLoader(fullname, str(file)))
