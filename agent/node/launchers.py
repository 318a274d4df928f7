"""Our launchers for an engine whose interpreter is not ours: copied into the shard's folder, alone.

The folder that holds the whole of llmgw would bring everything beside it: this interpreter's packages, which are not
made for the engine's.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from agent import launchers

_FOLDER = "import"


def folder(scratch: str) -> str:
    """Where `lay_out` puts them."""
    return f"{scratch}/{_FOLDER}"


def lay_out(names: Iterable[str], scratch: Path, owner: str | None) -> None:
    """Copies `agent.launchers.NAME` for each name; all of it belongs to `owner` where one is given. Raises OSError or
    LookupError (no such user)."""
    package = scratch / _FOLDER / "agent" / "launchers"
    package.mkdir(parents=True, exist_ok=True)
    made = [package.parents[1], package.parent, package]
    for file in (package.parent / "__init__.py", package / "__init__.py"):
        file.write_text("")
        made.append(file)
    for name in names:
        source = Path(launchers.__path__[0]) / f"{name}.py"
        made.append(package / source.name)
        made[-1].write_bytes(source.read_bytes())
    if owner is not None:
        for path in made:
            shutil.chown(path, owner)
