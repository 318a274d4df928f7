"""What a program or a library for Linux needs to start, read from its own tables: libraries by name, where it looks
for them, and the newest version of the C library that it asks for. Pure; bytes that are no such file say so."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from mmap import mmap

_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRTAB, _STRSZ, _SONAME, _RPATH, _RUNPATH = 1, 5, 10, 14, 15, 29
_VERNEED, _VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
MACHINES = {62: "x86_64", 183: "aarch64"}
_MOST = 4096


class NotElf(ValueError):
    """It is no file of this kind, or a damaged one."""


@dataclass(frozen=True, slots=True)
class Needs:
    """`search`: folders, `$ORIGIN` being the file's own; `glibc`: "2.38", None where it does not say."""

    machine: str
    libraries: tuple[str, ...]
    search: tuple[str, ...] = ()
    soname: str | None = None
    glibc: str | None = None


def is_elf(head: bytes) -> bool:
    return head[:4] == b"\x7fELF"


def needs(data: bytes | mmap) -> Needs:
    """Raises `NotElf`."""
    try:
        return _needs(data)
    except NotElf:
        raise
    except (struct.error, IndexError, ValueError, OverflowError) as e:
        raise NotElf(f"its tables cannot be read: {e}") from None


def older(has: str, wants: str) -> bool:
    """Whether version `has` is before `wants`."""
    return _numbers(has) < _numbers(wants)


def _needs(data: bytes | mmap) -> Needs:
    if not is_elf(data[:4]) or len(data) < 64:
        raise NotElf("it is no ELF file")
    if data[4] != 2 or data[5] != 1:
        raise NotElf("it is not for a 64-bit little-endian machine")
    machine = struct.unpack_from("<H", data, 18)[0]
    table, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    loads: list[tuple[int, int, int]] = []
    dynamic: tuple[int, int] | None = None
    for i in range(min(count, _MOST)):
        kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", data, table + i * size)
        if kind == _LOAD:
            loads.append((address, offset, length))
        elif kind == _DYNAMIC:
            dynamic = (offset, length)
    name = MACHINES.get(machine, f"machine {machine}")
    if dynamic is None:
        return Needs(name, ())
    entries: list[tuple[int, int]] = []
    for at in range(dynamic[0], dynamic[0] + min(dynamic[1], 16 * _MOST), 16):
        tag, value = struct.unpack_from("<QQ", data, at)
        if tag == 0:
            break
        entries.append((tag, value))
    told = dict(entries)
    if _STRTAB not in told:
        return Needs(name, ())
    strings = _offset(loads, told[_STRTAB])
    end = strings + told.get(_STRSZ, 0)

    def text(at: int) -> str:
        start = strings + at
        if not strings <= start < end:
            raise NotElf("a name lies outside its table")
        stop = data.find(b"\0", start, end)
        if stop < 0:
            raise NotElf("a name has no end")
        return data[start:stop].decode()

    search = [p for tag, value in entries if tag in (_RUNPATH, _RPATH) for p in text(value).split(":") if p]
    return Needs(
        name,
        tuple(text(value) for tag, value in entries if tag == _NEEDED),
        tuple(search),
        text(told[_SONAME]) if _SONAME in told else None,
        _glibc(data, loads, told, text) if _VERNEED in told else None,
    )


def _glibc(
    data: bytes | mmap, loads: list[tuple[int, int, int]], told: dict[int, int], text: Callable[[int], str]
) -> str | None:
    newest: str | None = None
    at = _offset(loads, told[_VERNEED])
    for _ in range(min(told.get(_VERNEEDNUM, 0), _MOST)):
        _, count, _, first, following = struct.unpack_from("<HHIII", data, at)
        entry = at + first
        for _ in range(count):
            _, _, _, name, next_entry = struct.unpack_from("<IHHII", data, entry)
            version = text(name)
            if version.startswith("GLIBC_2") and (newest is None or older(newest, version[6:])):
                newest = version[6:]
            entry += next_entry
            if not next_entry:
                break
        at += following
        if not following:
            break
    return newest


def _offset(loads: list[tuple[int, int, int]], address: int) -> int:
    for start, offset, length in loads:
        if start <= address < start + length:
            return address - start + offset
    raise NotElf("a table lies outside the file")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) if n.isdigit() else 0 for n in version.split("."))
