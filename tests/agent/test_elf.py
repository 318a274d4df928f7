"""What programs need, read from their own tables: real ones of this machine, made ones, and any bytes at all."""

from __future__ import annotations

import contextlib
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.elf import NotElf, is_elf, needs, older
from agent.node.install import libraries
from agent.node.install.failures import Failed

PROGRAM = Path(sys.executable).resolve()


def test_a_real_program_as_readelf_reads_it() -> None:
    if shutil.which("readelf") is None:
        pytest.skip("needs readelf to compare with")
    for path in (PROGRAM, Path(shutil.which("tar") or "/bin/sh").resolve()):
        said = subprocess.run(["readelf", "-dV", path], capture_output=True, text=True, check=True).stdout
        found = needs(path.read_bytes())
        assert list(found.libraries) == re.findall(r"\(NEEDED\)\s+Shared library: \[(.*)\]", said)
        versions = re.findall(r"Name: GLIBC_(2\.\d+)", said)
        assert found.glibc == max(versions, key=lambda v: int(v.split(".")[1]), default=None)
        assert libraries.look(path.parent, [path.name]) is None  # it runs, so it lacks nothing


@given(st.binary(max_size=400))
def test_any_bytes_say_that_they_are_none(data: bytes) -> None:
    with pytest.raises(NotElf):
        needs(data)


@given(st.lists(st.tuples(st.integers(0, 4000), st.binary(min_size=1, max_size=8)), min_size=1, max_size=6), st.integers(0, 5000))  # fmt: skip # noqa: E501
def test_damaged_ones_are_read_or_refused(patches: list[tuple[int, bytes]], cut: int) -> None:
    data = bytearray(_SMALL)
    for at, patch in patches:
        data[at : at + len(patch)] = patch
    with contextlib.suppress(NotElf):
        needs(bytes(data[: max(cut, 64)]))


def test_an_offset_that_no_memory_has_is_refused() -> None:
    table, size, count = struct.unpack_from("<Q", _SMALL, 32)[0], *struct.unpack_from("<HH", _SMALL, 54)
    headers = [table + n * size for n in range(count)]
    dynamic = next(at for at in headers if struct.unpack_from("<I", _SMALL, at)[0] == 2)
    data = bytearray(_SMALL)
    struct.pack_into("<Q", data, dynamic + 8, 2**64 - 8)
    with pytest.raises(NotElf, match="tables cannot be read"):
        needs(bytes(data))


_SMALL = Path("/bin/true").resolve().read_bytes()[:40_000]


def test_versions_are_compared_as_numbers() -> None:
    assert older("2.9", "2.38")
    assert not older("2.38", "2.38")
    assert not older("2.39", "2.38")
    assert is_elf(_SMALL[:4])


def test_an_old_c_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(PROGRAM, tmp_path / "llama-server")
    monkeypatch.setattr(libraries, "_glibc", lambda: "2.2")
    with pytest.raises(Failed) as failed:
        libraries.look(tmp_path, ["llama-server"])
    assert failed.value.passed
    assert re.fullmatch(
        r"llama-server needs glibc 2\.\d+, and this system has 2\.2: it was built for a newer one",
        failed.value.reason.sentence,
    )
    assert "engine_overrides" in failed.value.reason.command


def test_one_for_another_machine_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(PROGRAM, tmp_path / "llama-server")
    monkeypatch.setattr(libraries.platform, "machine", lambda: "riscv64")
    with pytest.raises(Failed, match="and this is riscv64"):
        libraries.look(tmp_path, ["llama-server"])


def test_a_script_needs_nothing(tmp_path: Path) -> None:
    (tmp_path / "llama-server").write_text("#!/bin/sh\n")
    assert libraries.look(tmp_path, ["llama-server", "libggml-cuda*.so*"]) is None


def test_a_library_beside_it_is_found_and_asked_too(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    for name, text in {"a.c": "int b(void); int a(void) { return b(); }", "b.c": "int b(void) { return 0; }", "m.c": "int a(void); int main(void) { return a(); }"}.items():  # fmt: skip # noqa: E501
        (tmp_path / name).write_text(text)

    def gcc(*words: str) -> None:
        subprocess.run(["gcc", "-O0", *words], cwd=tmp_path, check=True)

    (tmp_path / "bin").mkdir()
    gcc("-shared", "-fPIC", "-Wl,-soname,libb.so.77", "-o", "libb.so", "b.c")
    gcc("-shared", "-fPIC", "-Wl,-soname,liba.so.1", "-o", "bin/liba.so.1", "a.c", "-L.", "-lb")
    gcc("-o", "bin/main", "m.c", "bin/liba.so.1", "-Wl,-rpath,$ORIGIN", "-Wl,--unresolved-symbols=ignore-all")
    with pytest.raises(Failed, match=r"this machine lacks libb\.so\.77, which liba\.so\.1 needs"):
        libraries.look(tmp_path / "bin", ["main"])
    shutil.copy(tmp_path / "libb.so", tmp_path / "bin" / "libb.so.77")
    gcc("-shared", "-fPIC", "-Wl,-soname,liba.so.1", "-Wl,-rpath,$ORIGIN", "-o", "bin/liba.so.1", "a.c", "-L.", "-lb")
    assert libraries.look(tmp_path / "bin", ["main"]) is None
