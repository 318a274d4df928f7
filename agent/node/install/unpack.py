"""Unpacks tar and zip archives into a folder that nobody else writes to, as `agent.core.archive` allows.

No link is ever walked through while writing, nothing that is there is written over, and modes are ours: whoever packed
the archive decides about executable or not, and nothing more.
"""

from __future__ import annotations

import lzma
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from agent.core.archive import MOST_BYTES, MOST_MEMBERS, BadArchive, Kind, Member, place

_CHUNK = 1024 * 1024
Opener = Callable[[], IO[bytes]]


def unpack(archive: Path, into: Path, *, flat: bool = False, most_bytes: int = MOST_BYTES) -> int:
    """How many bytes were written. Raises `BadArchive`, OSError."""
    room = most_bytes
    links: list[Path] = []
    count = 0
    try:
        for member, opened in _members(archive):
            count += 1
            if count > MOST_MEMBERS:
                raise BadArchive(f"it holds more than {MOST_MEMBERS} files")
            placed = place(member, flat)
            if placed is None or not placed.parts:
                continue
            path = into.joinpath(*placed.parts)
            _folder(into, placed.parts[:-1])
            match member.kind:
                case Kind.FOLDER:
                    _folder(into, placed.parts)
                case Kind.FILE:
                    with opened() as source:
                        room -= _write(path, source, member.executable, room)
                case Kind.LINK:
                    os.symlink(member.link, path)
                    links.append(path)
                case Kind.HARD_LINK:
                    target = into.joinpath(*placed.target)
                    if _through_link(into, placed.target) or not target.is_file():
                        raise BadArchive(f"{member.name!a} links to what was not unpacked before it")
                    os.link(target, path)
                case _:
                    raise AssertionError(member.kind)
    except FileExistsError:
        raise BadArchive("it holds the same name twice") from None
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as e:
        raise BadArchive(f"it cannot be read: {type(e).__name__}: {str(e)[:200]}") from None
    except (ValueError, zlib.error, lzma.LZMAError) as e:
        raise BadArchive(f"it cannot be read: {str(e)[:200]}") from None
    except OSError as e:
        if e.errno is not None:  # the disk's, and not a decompressor's
            raise
        raise BadArchive(f"it cannot be read: {str(e)[:200]}") from None
    root = Path(os.path.realpath(into))
    for link in links:
        if not Path(os.path.realpath(link)).is_relative_to(root):
            raise BadArchive(f"the link {link.name!a} leads out of its folder")
    return most_bytes - room


def _members(archive: Path) -> Iterator[tuple[Member, Opener]]:
    if zipfile.is_zipfile(archive) and not tarfile.is_tarfile(archive):
        yield from _of_zip(archive)
    else:
        yield from _of_tar(archive)


def _of_tar(archive: Path) -> Iterator[tuple[Member, Opener]]:
    with tarfile.open(archive, "r:*", errors="surrogateescape") as tar:
        for info in tar:
            kind = (
                Kind.FOLDER
                if info.isdir()
                else Kind.FILE
                if info.isreg() and not info.issparse()
                else Kind.LINK
                if info.issym()
                else Kind.HARD_LINK
                if info.islnk()
                else Kind.OTHER
            )

            def opened(info: tarfile.TarInfo = info) -> IO[bytes]:
                found = tar.extractfile(info)
                assert found is not None
                return found

            yield Member(info.name, kind, bool(info.mode & 0o111), info.linkname), opened
            tar.members = []  # type: ignore[attr-defined]  # it would keep every header


def _of_zip(archive: Path) -> Iterator[tuple[Member, Opener]]:
    with zipfile.ZipFile(archive) as zipped:
        for info in zipped.infolist():
            mode = info.external_attr >> 16
            link = ""
            if info.is_dir():
                kind = Kind.FOLDER
            elif stat.S_ISLNK(mode):
                kind = Kind.LINK
                with zipped.open(info) as f:
                    link = f.read(4096).decode("utf-8", "surrogateescape")
            elif stat.S_IFMT(mode) in (0, stat.S_IFREG):
                kind = Kind.FILE
            else:
                kind = Kind.OTHER
            # A zip's reader has made "/" of "\\" and cut a name at its NUL already; what it said first counts.
            name = info.filename if info.filename == info.orig_filename else f"\\{info.orig_filename}"
            yield Member(name, kind, bool(mode & 0o111), link), lambda info=info: zipped.open(info)  # type: ignore[misc]


def _folder(into: Path, parts: tuple[str, ...]) -> None:
    here = into
    for part in parts:
        here = here / part
        try:
            here.mkdir(mode=0o755)
        except FileExistsError:
            if here.is_symlink() or not here.is_dir():
                raise BadArchive(f"it would write through {part!a}, which is no folder") from None


def _through_link(into: Path, parts: tuple[str, ...]) -> bool:
    here = into
    for part in parts:
        here = here / part
        if here.is_symlink():
            return True
    return False


def _write(path: Path, source: IO[bytes], executable: bool, room: int) -> int:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    written = 0
    with os.fdopen(fd, "wb") as f:
        while chunk := source.read(_CHUNK):
            written += len(chunk)
            if written > room:
                raise BadArchive("it unpacks to more than was bargained for")
            f.write(chunk)
        os.fchmod(f.fileno(), 0o755 if executable else 0o644)
    return written
