"""The environment that an engine is started with: built from nothing, never inherited whole. Pure.

Of the agent's own environment only a few harmless names pass. What a command adds is looked at once more here:
the definition was refused where it changes what runs, but what reaches a process is decided at its launch.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.core.proc import MARKER
from agent.engine import Command
from agent.engines.rules import changes_what_runs

_PASSED_ON = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def for_engine(
    agent: Mapping[str, str], command: Command, *, mark: str, scratch: str, import_from: str | None
) -> dict[str, str]:
    """The whole environment of one process of a shard. `mark` is the marker's value; `import_from` a folder that
    our launcher has to be imported from, where it is not installed in the interpreter itself."""
    found = {name: agent[name] for name in _PASSED_ON if name in agent}
    found |= {name: value for name, value in command.env.items() if not changes_what_runs(name)}
    found |= {"PATH": _path(command.argv[0]), "HOME": scratch, "TMPDIR": scratch}
    if import_from is not None:
        found["PYTHONPATH"] = import_from
    found |= command.secret_env
    found[MARKER] = mark
    return found


def _path(executable: str) -> str:
    """The system's, then the engine's own folder: what it builds kernels with (ninja) lies in its environment."""
    folder = executable.rpartition("/")[0]
    return f"{_PATH}:{folder}" if folder.startswith("/") and ":" not in folder else _PATH
