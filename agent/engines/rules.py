"""What a profile may not hand to an engine: flags that llmgw sets itself, and environment that changes what runs.

A definition is data that many people may write; it must not become a way to run code on a node. The same rules
are applied when a model is defined (as refusals) and again when an engine is launched (by dropping).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from agent.wire.facts import NodeFacts
from agent.wire.reason import Reason

_VERSION = re.compile(r"v?(\d+(?:\.\d+)*)")
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


def flags(args: Sequence[str]) -> list[tuple[str, str]]:
    """Each flag with the value beside it (or after its `=`); an empty string where there is none."""
    found = []
    for i, argument in enumerate(args):
        flag = flag_of(argument)
        if flag is not None:
            after = argument.split("=", 1)[1] if "=" in argument else "".join(args[i + 1 : i + 2])
            found.append((flag, after))
    return found


def refused_flags(
    args: Iterable[str], refused: Mapping[str, str], *, abbreviates: bool = False, known: Collection[str] = ()
) -> tuple[Reason, ...]:
    """A reason for each argument that is one of `refused` (flag to why), in any spelling.

    `abbreviates`: the engine reads its command line with argparse, which takes a flag's beginning for the flag, a
    value glued to a short one (`-n2`), and in some engines a key of it after a dot (`--config.key`); `known` are
    flags of their own that a refused one begins with.
    """
    found = []
    for argument in args:
        flag = flag_of(argument)
        if "\0" in argument:
            found.append(Reason("flag_refused", "an argument holds a NUL"))
        elif flag == "--":
            found.append(Reason("flag_refused", "the argument -- is refused: what follows it would be no flag"))
        elif flag is not None:
            meant = _meant(flag, refused, known) if abbreviates else flag
            if meant in refused:
                short = "" if meant == flag else f", which the engine may read as {meant},"
                found.append(Reason("flag_refused", f"the argument {flag[:80]}{short} is refused: {refused[meant]}"))
    return tuple(found)


def _meant(flag: str, refused: Mapping[str, str], known: Collection[str]) -> str:
    """The refused flag that argparse may read `flag` as; `flag` itself where there is none."""
    base = flag.split(".", 1)[0]
    if base in refused or base in known:
        return base
    if not flag.startswith("--") and flag[:2] in refused:
        return flag[:2]
    return next((r for r in refused if r.startswith(base)), flag)


_RISKY = (
    "trust_remote_code",
    "trust-remote-code",
    "module_path",
    "plugin",
    "_cls",
    "logits_processor",
    "worker_extension",
)


def risky_values(args: Iterable[str]) -> tuple[Reason, ...]:
    """A reason for each argument (the JSON of a `--…-config`, say) that asks within it for code from elsewhere."""
    found = []
    for argument in args:
        flag = flag_of(argument)
        plain = argument.lower()
        word = next((w for w in _RISKY if w in plain), None)
        if word is not None and (flag is None or "=" in argument or "." in argument):
            found.append(
                Reason(
                    "flag_refused", f"the argument {argument[:80]!r} is refused: {word} in it loads code from elsewhere"
                )
            )
    return tuple(found)


def installed(name: str, label: str, facts: NodeFacts, how: str) -> list[Reason]:
    """Whether a node has an engine that can be used; `how`: what it takes, for the sentence of one that has none."""
    if facts.engines is None:
        return []
    mine = [e for e in facts.engines if e.name == name]
    if not mine:
        return [Reason("engine_missing", f"{label} is not installed on the node: {how}")]
    if all(e.problem for e in mine):
        return [Reason("engine_unusable", f"{label} cannot be used on the node: {mine[0].problem}")]
    return []


def version(written: str | None) -> tuple[int, ...] | None:
    """The numbers that a version begins with: `1.3.0rc13` is (1, 3, 0). None where it begins with none."""
    match = _VERSION.match(written or "")
    return None if match is None else tuple(int(n) for n in match[1].split("."))
