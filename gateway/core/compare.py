"""Two answers beside each other: which words only one of them has, and both in columns. Pure."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

MOST_WORDS = 2000
"""Of each that are compared; what comes after is shown as it is. Comparing takes the product of both in time."""
_WORD = re.compile(r"\s+|\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Piece:
    """`own`: the other answer has no such words here."""

    text: str
    own: bool


def pieces(left: str, right: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Both answers whole, in pieces."""
    a, rest_a = _words(left)
    b, rest_b = _words(right)
    found: tuple[list[Piece], list[Piece]] = ([], [])
    for kind, a1, a2, b1, b2 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        for side, words in ((0, a[a1:a2]), (1, b[b1:b2])):
            if words:
                found[side].append(Piece("".join(words), kind != "equal"))
    for side, rest in ((0, rest_a), (1, rest_b)):
        if rest:
            found[side].append(Piece(rest, False))
    return tuple(found[0]), tuple(found[1])


def alike(left: str, right: str) -> float:
    """The share of words that they have in common, 0 to 1."""
    a, b = _words(left)[0], _words(right)[0]
    return SequenceMatcher(None, a, b, autojunk=False).ratio() if a or b else 1.0


def columns(left: str, right: str, width: int) -> list[str]:
    """As lines of a terminal that is `width` wide."""
    half = max(20, (width - 3) // 2)
    both = zip_longest(_wrapped(left, half), _wrapped(right, half), fillvalue="")
    return [f"{a:<{half}} │ {b}".rstrip() for a, b in both]


def _words(text: str) -> tuple[list[str], str]:
    words: list[str] = []
    end = 0
    for match in _WORD.finditer(text):
        if len(words) == MOST_WORDS:
            break
        words.append(match[0])
        end = match.end()
    return words, text[end:]


def _wrapped(text: str, width: int) -> list[str]:
    return [line for part in text.splitlines() or [""] for line in textwrap.wrap(part, width) or [""]]
