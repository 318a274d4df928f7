"""Archives are somebody else's: whatever is in one, nothing is written outside its folder."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.archive import BadArchive
from agent.node.install.unpack import unpack

NAMES = st.one_of(
    st.sampled_from(
        [
            "a",
            "b",
            "a/b",
            "a/b/c",
            "./a",
            "../x",
            "/etc/x",
            "a/../../x",
            "a//b",
            ".",
            "..",
            "a/.",
            "b/..",
            "ü",
            "a\\..\\x",
        ]
    ),
    st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), min_size=1, max_size=12),
)
LINKS = st.one_of(st.sampled_from([".", "..", "a", "../a", "../..", "b", "/", "/tmp", "a/..", "a/../..", "b/c"]), NAMES)
KINDS = st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])  # fmt: skip # noqa: E501
MEMBERS = st.lists(st.tuples(NAMES, KINDS, LINKS), max_size=8)


def tarred(members: list[tuple[str, bytes, str]], path: Path) -> Path:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, kind, link in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.mode = kind, link, 0o6777
            data = b"data" if kind == tarfile.REGTYPE else b""
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def zipped(members: list[tuple[str, bytes, str]], path: Path) -> Path:
    modes = {tarfile.SYMTYPE: stat.S_IFLNK, tarfile.DIRTYPE: stat.S_IFDIR, tarfile.FIFOTYPE: stat.S_IFIFO}
    with zipfile.ZipFile(path, "w") as archive:
        for name, kind, link in members:
            info = zipfile.ZipInfo(name + ("/" if kind == tarfile.DIRTYPE else ""))
            info.external_attr = (modes.get(kind, stat.S_IFREG) | 0o6777) << 16
            archive.writestr(info, link if kind == tarfile.SYMTYPE else b"data")
    return path


def everything(folder: Path) -> set[str]:
    return {str(Path(where) / name) for where, dirs, files in os.walk(folder) for name in (*dirs, *files)}


def check(archive: Path, root: Path) -> None:
    outside = root / "outside"
    outside.mkdir()
    (outside / "file").write_text("untouched")
    inside = root / "inside" / "here"
    inside.mkdir(parents=True)
    before = everything(root)
    with contextlib.suppress(BadArchive):
        unpack(archive, inside)
    made = everything(root) - before
    assert all(m.startswith(f"{inside}/") for m in made), made
    assert (outside / "file").read_text() == "untouched"
    for path in map(Path, made):
        mode = path.lstat().st_mode
        assert stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)
        if not stat.S_ISLNK(mode):
            assert not mode & 0o7022


@settings(max_examples=60)
@given(MEMBERS)
def test_no_tar_writes_outside_its_folder(tmp_path_factory: pytest.TempPathFactory, members: list[tuple[str, bytes, str]]) -> None:  # fmt: skip # noqa: E501
    root = tmp_path_factory.mktemp("tar")
    check(tarred(members, root / "x.tar"), root)


@settings(max_examples=60)
@given(MEMBERS)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_no_zip_writes_outside_its_folder(tmp_path_factory: pytest.TempPathFactory, members: list[tuple[str, bytes, str]]) -> None:  # fmt: skip # noqa: E501
    root = tmp_path_factory.mktemp("zip")
    check(zipped(members, root / "x.zip"), root)


@settings(max_examples=40)
@given(st.binary(max_size=2000), st.sampled_from([b"", b"\x1f\x8b\x08\x00", b"PK\x03\x04", b"\xfd7zXZ\x00", b"BZh9"]))
def test_what_is_no_archive_is_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes, head: bytes) -> None:
    root = tmp_path_factory.mktemp("bytes")
    (root / "x").write_bytes(head + data)
    check(root / "x", root)


REG, SYM, LNK, DIR = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ([("../x", REG, "")], "outside its folder"),
        ([("/x", REG, "")], "outside its folder"),
        ([("a", SYM, "/etc"), ("a/x", REG, "")], "outside its folder"),
        ([("a", SYM, ".."), ("a/x", REG, "")], "outside its folder"),
        ([("a", SYM, "."), ("a/x", REG, "")], "would write through 'a'"),
        ([("d/e/f", DIR, ""), ("d/e/f/x", SYM, "../../.."), ("y", SYM, "d/e/f/x/..")], "leads out of its folder"),
        ([("a", LNK, "../x")], "outside its folder"),
        ([("a", SYM, "b"), ("b", REG, ""), ("c", LNK, "a")], "what was not unpacked before it"),
        ([("a", LNK, "b")], "what was not unpacked before it"),
        ([("a", REG, ""), ("a", REG, "")], "the same name twice"),
        ([("a", REG, ""), ("a/b", REG, "")], "which is no folder"),
        ([("a", tarfile.CHRTYPE, "")], "neither file, folder nor link"),
        ([("a", tarfile.FIFOTYPE, "")], "neither file, folder nor link"),
        ([("a\nb", REG, "")], "which is no name"),
        ([("a" * 300, REG, "")], "which is no name"),
        ([(".", SYM, "a")], "in place of its own folder"),
    ],
)
def test_each_trick_is_named(tmp_path: Path, members: list[tuple[str, bytes, str]], says: str) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(BadArchive) as refused:
        unpack(tarred(members, tmp_path / "x.tar"), tmp_path / "in")
    assert says in str(refused.value)


def test_a_bomb_is_stopped(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("big", b"\0" * (4 * 2**20))
    (tmp_path / "in").mkdir()
    with pytest.raises(BadArchive, match="more than was bargained for"):
        unpack(tmp_path / "x.zip", tmp_path / "in", most_bytes=2**20)


def test_what_a_release_holds_is_kept(tmp_path: Path) -> None:
    members = [("r", DIR, ""), ("r/lib.so.1", REG, ""), ("r/lib.so", SYM, "lib.so.1"), ("r/hard", LNK, "r/lib.so.1"), ("up/x", SYM, "../r/lib.so")]  # fmt: skip # noqa: E501
    (tmp_path / "in").mkdir()
    assert unpack(tarred(members, tmp_path / "x.tar"), tmp_path / "in") == 4
    assert (tmp_path / "in" / "up" / "x").read_bytes() == b"data"
    (tmp_path / "flat").mkdir()
    unpack(tarred(members[:3], tmp_path / "y.tar"), tmp_path / "flat", flat=True)
    assert sorted(p.name for p in (tmp_path / "flat").iterdir()) == ["lib.so", "lib.so.1"]
