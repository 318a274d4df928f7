"""Where two prompts part, what it is, and how much of the first would have served the second but for that. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.core.lint import varies
from gateway.core.lint.prompt import Piece, Prompt, size

BYTES_A_TOKEN = 4
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Parting:
    """`at_byte` of the prompt, in `path` at its character `at_character`. `lost_bytes`: equal text behind it, which was
    read anew. `was`, `now`: the words that differ."""

    code: str
    path: str
    at_byte: int
    at_character: int
    lost_bytes: int
    was: str = ""
    now: str = ""

    @property
    def lost_tokens(self) -> int:
        return self.lost_bytes // BYTES_A_TOKEN


def parting(before: Prompt, after: Prompt) -> Parting | None:
    """None where the one begins as all of the other."""
    return _tools(before, after) or _messages(before, after)


def _tools(before: Prompt, after: Prompt) -> Parting | None:
    old, new = [t.text for t in before.tools], [t.text for t in after.tools]
    if old == new:
        return None
    same = _common(old, new)
    at_byte = sum(map(size, old[:same]))
    first = old[same] if same < len(old) else ""
    other = new[same] if same < len(new) else ""
    character = _start(first, other)
    kept_apart = sum(_equal(before.pieces, after.pieces))
    if sorted(map(_sorted, old)) == sorted(map(_sorted, new)):
        lost = sum(map(size, old[same:])) + kept_apart
        code = "keys_reordered" if list(map(_sorted, old)) == list(map(_sorted, new)) else "tools_reordered"
    else:
        code, lost = "tools_changed", kept_apart
    at_byte += size(first[:character])
    return Parting(code, f"tools[{same}]", at_byte, character, lost, first[:_SHOWN], other[:_SHOWN])


def _messages(before: Prompt, after: Prompt) -> Parting | None:
    old, new = before.pieces, after.pieces
    same = _common([_says(p) for p in old], [_says(p) for p in new])
    if same == len(old) or same == len(new):
        return None
    at_byte = sum(size(p.text) for p in (*before.tools, *old[:same]))
    if (dropped := _trimmed(old, new, same)) is not None:
        path = old[same].path
        return Parting("history_trimmed", path, at_byte, 0, dropped, old[same].text[:_SHOWN], new[same].text[:_SHOWN])
    a, b = old[same], new[same]
    start = _start(a.text, b.text)
    end = _end(a.text, b.text, start)
    if a.image or b.image:
        code, lost = "image_first", 0
    elif a.path.endswith((".tool_calls", ".tool_call_id")):
        code, lost = "changing_ids", size(a.text[len(a.text) - end :])
    else:
        code, lost = varies.kind(a.text, b.text, start, end), size(a.text[len(a.text) - end :])
        if code in ("white_space", "keys_reordered"):
            lost = size(a.text[start:])
    lost += sum(_equal(old[same + 1 :], new[same + 1 :]))
    was, now = _words(a.text, start, end), _words(b.text, start, end)
    return Parting(code, a.path, at_byte + size(a.text[:start]), start, lost, was, now)


def _trimmed(old: Sequence[Piece], new: Sequence[Piece], same: int) -> int | None:
    """The bytes behind what was dropped, where `new` goes on with a later message of `old`."""
    texts = [_says(p) for p in new[same:]]
    for i in range(same + 1, len(old)):
        rest = [_says(p) for p in old[i:]]
        if rest[: len(texts)] == texts[: len(rest)]:
            return sum(size(p.text) for p in old[i:])
    return None


def _equal(old: Sequence[Piece], new: Sequence[Piece]) -> list[int]:
    """The sizes of the pieces that both begin with."""
    same = _common([_says(p) for p in old], [_says(p) for p in new])
    return [size(p.text) for p in old[:same]]


def _says(piece: Piece) -> tuple[str, str]:
    return piece.role, piece.text


def _common(old: Sequence[object], new: Sequence[object]) -> int:
    same = 0
    while same < min(len(old), len(new)) and old[same] == new[same]:
        same += 1
    return same


def _start(a: str, b: str) -> int:
    """How many characters both begin with."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a[low:middle] == b[low:middle] else (low, middle - 1)
    return low


def _end(a: str, b: str, start: int) -> int:
    """How many of those behind `start` both end with."""
    low, high = 0, min(len(a), len(b)) - start
    while low < high:
        middle = (low + high + 1) // 2
        same = a[len(a) - middle : len(a) - low] == b[len(b) - middle : len(b) - low]
        low, high = (middle, high) if same else (low, middle - 1)
    return low


def _words(text: str, start: int, end: int) -> str:
    """What differs, to the ends of its words."""
    last = len(text) - end
    while start > 0 and not text[start - 1].isspace():
        start -= 1
    while last < len(text) and not text[last].isspace():
        last += 1
    return text[start:last][:_SHOWN]


def _sorted(text: str) -> str:
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return text
