"""What it is that differs between two texts that should be the same. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?"
KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("uuid", re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b")),
    (
        "timestamp",
        re.compile(
            r"\b\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2})?(?:\.\d+)?(?:Z|[+-]\d{2}:?\d{2})?|"
            r"\b\d{1,2}:\d{2}(?::\d{2})?\b(?:\s*[AaPp]\.?[Mm]\b)?|\b1[4-9]\d{8}(?:\d{3})?\b"
        ),
    ),
    (
        "date",
        re.compile(
            rf"\b\d{{4}}-\d{{2}}-\d{{2}}\b|\b\d{{1,2}}[./]\d{{1,2}}[./]\d{{2,4}}\b|"
            rf"\b{_MONTH} \d{{1,2}}(?:,? \d{{4}})?\b|\b\d{{1,2}}\.? {_MONTH},? \d{{4}}\b"
        ),
    ),
    (
        "random_id",
        re.compile(
            r"\b[a-z]{2,12}[_-](?=[A-Za-z0-9]*\d)[A-Za-z0-9]{8,}\b|\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{12,}\b|"
            r"\b(?=\w*\d)(?=\w*[A-Z])(?=\w*[a-z])[A-Za-z0-9]{20,}\b"
        ),
    ),
)
"""The first that is found on both sides names it."""


def kind(before: str, after: str, at: int, end: int) -> str:
    """Of two texts that are the same up to `at` and in their last `end` characters."""
    if before.split() == after.split():
        return "white_space"
    if (structure := _structure(before, after)) is not None:
        return structure
    for name, pattern in KINDS:
        if _spans(pattern, before, at, len(before) - end) and _spans(pattern, after, at, len(after) - end):
            return name
    return "varying_text"


def standing(text: str) -> list[tuple[str, int, str]]:
    """What in one text looks as if it were another each time: kind, character, words."""
    found: list[tuple[str, int, str]] = []
    taken: list[tuple[int, int]] = []
    for name, pattern in KINDS:
        for match in pattern.finditer(text):
            if not any(start < match.end() and match.start() < end for start, end in taken):
                taken.append(match.span())
                found.append((name, match.start(), match[0]))
    return sorted(found, key=lambda each: each[1])


def same_but_for_order(before: str, after: str) -> bool:
    """Whether two JSON texts say the same."""
    a, b = _json(before), _json(after)
    return a is not None and a == b


def _spans(pattern: re.Pattern[str], text: str, at: int, end: int) -> bool:
    """Whether a match covers some of [at, end), or touches it where it is empty."""
    start = max(0, at - 64)
    return any(m.start() <= end and at <= m.end() for m in pattern.finditer(text, start, min(len(text), end + 64)))


def _structure(before: str, after: str) -> str | None:
    return "keys_reordered" if same_but_for_order(before, after) else None


def _json(text: str) -> Any:
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
