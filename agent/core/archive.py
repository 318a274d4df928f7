"""What of an archive may be written, and where: nothing outside its folder, no devices, no more than was bargained for.

Pure; the archive is somebody else's, and every name in it may be meant to hurt.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

MOST_MEMBERS = 200_000
MOST_BYTES = 12 * 2**30
_LONGEST = 1024


class BadArchive(Exception):
    """The archive is refused as a whole; the sentence names the member."""


class Kind(Enum):
    FOLDER = "folder"
    FILE = "file"
    LINK = "link"
    HARD_LINK = "hard link"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Member:
    """`link`: where a link leads, as the archive words it."""

    name: str
    kind: Kind
    executable: bool = False
    link: str = ""


@dataclass(frozen=True, slots=True)
class Placed:
    """`parts` below the folder; empty for the folder itself. `target`: of a hard link, below the folder too."""

    parts: tuple[str, ...]
    target: tuple[str, ...] = ()


def place(member: Member, flat: bool = False) -> Placed | None:
    """Where it goes; None where there is nothing to do. `flat` leaves out folders. Raises `BadArchive`."""
    if member.kind is Kind.OTHER:
        raise BadArchive(f"it holds {_shown(member.name)}, which is neither file, folder nor link")
    parts = _parts(member.name, "it would write to")
    match member.kind:
        case Kind.LINK:
            if not parts:
                raise BadArchive("it would put a link in place of its own folder")
            _inside(parts, member)
        case Kind.FILE | Kind.HARD_LINK if not parts:
            raise BadArchive("it holds a file without a name")
        case _:
            pass
    target = _parts(member.link, "it links to") if member.kind is Kind.HARD_LINK else ()
    if member.kind is Kind.HARD_LINK and not target:
        raise BadArchive(f"{_shown(member.name)} links to nothing")
    if not flat:
        return Placed(parts, target)
    if member.kind is Kind.FOLDER:
        return None
    if member.kind is Kind.LINK and "/" in member.link:
        raise BadArchive(f"{_shown(member.name)} leads to {_shown(member.link)}, and only to a neighbour may it")
    return Placed(parts[-1:], target[-1:])


def _parts(name: str, what: str) -> tuple[str, ...]:
    if not name or len(name) > _LONGEST or any(ord(c) < 32 or 0xD800 <= ord(c) <= 0xDFFF for c in name):
        raise BadArchive(f"{what} {_shown(name)}, which is no name")
    if name.startswith("/") or "\\" in name:
        raise BadArchive(f"{what} {_shown(name)}, which is outside its folder")
    parts = tuple(p for p in name.split("/") if p not in ("", "."))
    if ".." in parts:
        raise BadArchive(f"{what} {_shown(name)}, which is outside its folder")
    if any(len(p.encode()) > 255 for p in parts):
        raise BadArchive(f"{what} {_shown(name)}, which is no name")
    return parts


def _inside(parts: tuple[str, ...], member: Member) -> None:
    """A link may lead upwards, as long as it stays in the folder. (That no link is walked through on the way is for
    whoever writes.)"""
    link = member.link
    if not link or len(link) > _LONGEST or link.startswith("/") or "\\" in link or any(ord(c) < 32 for c in link):
        raise BadArchive(f"{_shown(member.name)} leads to {_shown(link)}, which is outside its folder")
    depth = len(parts) - 1
    for part in link.split("/"):
        depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
        if depth < 0:
            raise BadArchive(f"{_shown(member.name)} leads to {_shown(link)}, which is outside its folder")


def _shown(name: str) -> str:
    return ascii(name[:120])
