"""The vocabulary: every byte and every marker is one token, so a text's length in tokens is known by sight."""

from __future__ import annotations

import re

BEGIN, PAD, END = "<|begin|>", "<|pad|>", "<|end|>"
SYSTEM, USER, ASSISTANT, TOOL = "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"
CONTROL = (BEGIN, PAD, END, SYSTEM, USER, ASSISTANT, TOOL)
"""Markers that never appear in an answer's text."""

VISIBLE = ("<tools>", "</tools>", "<tool_call>", "</tool_call>")
"""Markers that are text too: llama.cpp finds a tool call in the answer by them."""

SIZE = 288
"""Tokens in all, a multiple of 32; the rest is unused."""

_BYTES = 256
_MARKERS = {marker: _BYTES + i for i, marker in enumerate((*CONTROL, *VISIBLE))}
_SPLIT = re.compile("(" + "|".join(re.escape(marker) for marker in _MARKERS) + ")")

BEGIN_ID, PAD_ID, END_ID, ASSISTANT_ID = (_MARKERS[m] for m in (BEGIN, PAD, END, ASSISTANT))


def encode(text: str) -> list[int]:
    """Token numbers of a text in which markers count as markers, as llama.cpp reads a rendered template."""
    ids: list[int] = []
    for piece in _SPLIT.split(text):
        if piece in _MARKERS:
            ids.append(_MARKERS[piece])
        else:
            ids.extend(piece.encode())
    return ids


def spelled() -> list[str]:
    """Every token as a GGUF of the GPT-2 tokeniser spells it: bytes as printable characters, then the markers."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(_BYTES) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    spelling = [letters[byte] for byte in range(_BYTES)] + list(_MARKERS)
    # llama.cpp refuses a tokeniser without a single merge: this one joins two NUL bytes.
    spelling.append(letters[0] * 2)
    return spelling + [f"<|unused{i}|>" for i in range(SIZE - len(spelling))]


def merges() -> list[str]:
    """The one merge rule that the GPT-2 tokeniser must have; it never applies to text."""
    nul = spelled()[0]
    return [f"{nul} {nul}"]
