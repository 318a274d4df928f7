"""Looks at a GGUF file before an engine is started on it: is it one, and is it all there? Pure: bytes in.

Only what tells a whole file from a truncated one is read: the header, the sizes of the metadata, and each
tensor's place. Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from typing import Protocol

from agent.wire.reason import Reason

MAGIC = b"GGUF"
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9
_DEPTH = 4
_MOST_DIMENSIONS = 8

# ggml type → (values a block, bytes a block); from ggml's own table of type traits.
_BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82),
    23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2),
    34: (256, 54), 35: (256, 66), 39: (32, 17),
}  # fmt: skip


class Buffer(Protocol):
    """bytes, or a file mapped into memory."""

    def __len__(self) -> int: ...
    def __getitem__(self, key: slice, /) -> bytes: ...


class _Short(Exception):
    """The file ends within what it announces."""


class _Odd(Exception):
    """The file is not as the format says."""


def problem(data: Buffer, name: str) -> Reason | None:
    """Why no engine can be started on the file `name` that holds `data`; None when nothing speaks against it."""
    if len(data) == 0:
        return Reason("weights_empty", f"the model file {name} is empty")
    if bytes(data[0:4]) != MAGIC:
        return Reason("weights_not_gguf", f"the model file {name} is no GGUF file: it does not begin with 'GGUF'")
    try:
        wanted = _announced(data)
    except _Short:
        return _truncated(name, f"its header ends after {len(data)} bytes")
    except _Odd as e:
        return Reason("weights_damaged", f"the model file {name} is a damaged GGUF file: {e}")
    if len(data) < wanted:
        return _truncated(name, f"it has {len(data)} of at least {wanted} bytes")
    return None


def _truncated(name: str, found: str) -> Reason:
    return Reason("weights_truncated", f"the model file {name} is truncated: {found}; fetch or copy it again")


def _announced(data: Buffer) -> int:
    """The least length, in bytes, of a file with this header."""
    version = _u32(data, 4)
    if version & 0xFFFF == 0:
        raise _Odd("it is big-endian, which is not supported")
    if not 2 <= version <= 3:
        raise _Odd(f"version {version}, where 2 or 3 was expected")
    tensors, pairs = _u64(data, 8), _u64(data, 16)
    if tensors > len(data) or pairs > len(data):
        raise _Short
    at, alignment = 24, 32
    for _ in range(pairs):
        length = _u64(data, at)
        key = bytes(data[at + 8 : at + 8 + min(length, 64)])
        at += 8 + length
        kind = _u32(data, at)
        if key == b"general.alignment" and kind == 4:
            alignment = _u32(data, at + 4)
        at = _after_value(data, at + 4, kind, 0)
    if alignment == 0 or alignment > 1 << 20:
        raise _Odd(f"an alignment of {alignment}")
    end = 0
    for _ in range(tensors):
        at += 8 + _u64(data, at)
        dimensions = _u32(data, at)
        if dimensions > _MOST_DIMENSIONS:
            raise _Odd(f"a tensor of {dimensions} dimensions")
        values = 1
        for d in range(dimensions):
            values *= _u64(data, at + 4 + 8 * d)
        at += 4 + 8 * dimensions
        kind, offset = _u32(data, at), _u64(data, at + 4)
        at += 12
        per_block, size = _BLOCKS.get(kind, (1, 0))  # a type newer than this table: its start alone is checked
        end = max(end, offset + -(-values // per_block) * size)
    start = -(-at // alignment) * alignment
    return start + end if tensors else at


def _after_value(data: Buffer, at: int, kind: int, depth: int) -> int:
    if kind in _SCALARS:
        return at + _SCALARS[kind]
    if kind == _STRING:
        return at + 8 + _u64(data, at)
    if kind != _ARRAY or depth >= _DEPTH:
        raise _Odd(f"a value of type {kind}")
    inner, count = _u32(data, at), _u64(data, at + 4)
    at += 12
    if inner in _SCALARS:
        return at + count * _SCALARS[inner]
    for _ in range(count):
        at = _after_value(data, at, inner, depth + 1)
    return at


def _u32(data: Buffer, at: int) -> int:
    found = data[at : at + 4]
    if len(found) < 4:
        raise _Short
    value: int = _U32.unpack(found)[0]
    return value


def _u64(data: Buffer, at: int) -> int:
    found = data[at : at + 8]
    if len(found) < 8:
        raise _Short
    value: int = _U64.unpack(found)[0]
    return value
