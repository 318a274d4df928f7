"""What a profile may not hand to an engine: flags that llmgw sets itself, and environment that changes what runs.

A definition is data that many people may write; it must not become a way to run code on a node. The same rules
are applied when a model is defined (as refusals) and again when an engine is launched (by dropping).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from agent.wire.reason import Reason

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CHANGES_WHAT_RUNS = re.compile(
    r"(LD|DYLD|PYTHON|BASH|PERL|RUBY|NODE|JAVA|GCONV|MALLOC|GLIBC|SSL|LLMGW)(_.*)?"
    r"|PYTHON.*|PATH|HOME|SHELL|ENV|IFS|CDPATH|PS4|PROMPT_COMMAND|USER|LOGNAME|TMPDIR|LOCPATH|NLSPATH|HOSTALIASES"
    r"|.*(_PATH|_PRELOAD|_LIBRARY|_LIBRARIES|_FILENAMES?|_PLUGINS?|_PROXY)|.*INJECTION.*|.*_API_KEY(_.*)?",
    re.IGNORECASE,
)


def changes_what_runs(name: str) -> bool:
    """Whether an environment variable decides which code a process loads, or whom it talks to."""
    return _NAME.fullmatch(name) is None or _CHANGES_WHAT_RUNS.fullmatch(name) is not None


def refused_environment(
    environment: Mapping[str, str], families: Iterable[str], own: Iterable[str] = ()
) -> tuple[Reason, ...]:
    """A reason for each variable that is not of the engine's `families` (prefixes), is one of those that llmgw
    sets itself (`own`: names, or prefixes that end in `*`), or changes what runs."""
    families, own = tuple(families), tuple(own)
    found = []
    for name, value in environment.items():
        if changes_what_runs(name):
            why = "it changes what runs on the node"
        elif any(name == o or (o.endswith("*") and name.startswith(o[:-1])) for o in own):
            why = "llmgw sets it itself"
        elif not name.startswith(families):
            why = f"only {', '.join(f + '*' for f in families)} are handed to this engine"
        elif "\0" in value:
            why = "its value holds a NUL"
        else:
            continue
        found.append(Reason("environment_refused", f"the environment variable {name[:80]!r} is refused: {why}"))
    return tuple(found)


def kept_environment(
    environment: Mapping[str, str], families: Iterable[str], own: Iterable[str] = ()
) -> dict[str, str]:
    """The part of `environment` that `refused_environment` has nothing against."""
    families, own = tuple(families), tuple(own)
    return {n: v for n, v in environment.items() if not refused_environment({n: v}, families, own)}


def flag_of(argument: str) -> str | None:
    """The flag that an argument names, in one spelling: `--api_key=x` is `--api-key`. None for a value."""
    if not argument.startswith("-"):
        return None
    name = argument.split("=", 1)[0]
    return name.replace("_", "-").lower() if name.startswith("--") else name


def refused_flags(args: Iterable[str], refused: Mapping[str, str]) -> tuple[Reason, ...]:
    """A reason for each argument that is one of `refused` (flag to why), in any spelling."""
    found = []
    for argument in args:
        flag = flag_of(argument)
        if flag is not None and flag in refused:
            found.append(Reason("flag_refused", f"the argument {flag} is refused: {refused[flag]}"))
        elif "\0" in argument:
            found.append(Reason("flag_refused", "an argument holds a NUL"))
    return tuple(found)
