"""What the tree organisation → team → project → key leaves: a level narrows what is above it, never widens. Pure.

An allowlist of None says nothing, an empty one allows nothing. Limits are not merged: each level's own bind the sum of
what is below it (`tenancy.core.limits`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from llmgw.fold import fold


def narrow_allow(*levels: Iterable[str] | None) -> tuple[str, ...] | None:
    """The model names that every level allows, outermost level first; None where no level says anything."""
    allowed: tuple[str, ...] | None = None
    for level in levels:
        if level is None:
            continue
        names = tuple(dict.fromkeys(fold(name) for name in level))
        allowed = names if allowed is None else tuple(name for name in allowed if name in names)
    return allowed


def clean_allow(names: Iterable[str] | None) -> list[str] | None:
    """An allowlist as it is stored: no blanks, no name twice; None stays None."""
    return None if names is None else list(dict.fromkeys(filter(None, (name.strip() for name in names))))


def allows(allow: Sequence[str] | None, model: str) -> bool:
    """Whether a (narrowed) allowlist lets `model` be used."""
    return allow is None or fold(model) in {fold(name) for name in allow}


def narrow_flag(*levels: bool) -> bool:
    """`in_cluster`, `no_store`: said at one level, it holds below."""
    return any(levels)


def narrow_days(*levels: int | None) -> int | None:
    """The longest life that a key may be given: the shortest that anybody says; None where nobody does."""
    return min((days for days in levels if days is not None), default=None)


def narrow_tools(*levels: Iterable[str] | None) -> tuple[tuple[str, ...], ...]:
    """The patterns (`jira.*`) of those levels that name tools, outermost first: each of them must name a tool."""
    return tuple(tuple(dict.fromkeys(level)) for level in levels if level is not None)


def sees(tools: Sequence[Sequence[str]], tool: str) -> bool:
    """Whether `tool` (`server.tool`) is granted. A tool reaches into a company's systems: granted nowhere is no."""
    return bool(tools) and all(any(fnmatchcase(tool, pattern) for pattern in level) for level in tools)
