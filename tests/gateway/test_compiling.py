"""The compiled form of the inference path: made whole or not at all, and taken for the sources it was made from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.compiling import building, loading, walk
from llmgw.machine import Machine, read

SMALL = ("gateway.core.ids", "gateway.core.framing")


def made(where: Path) -> Path:
    """What looks like a build of the sources as they are."""
    build = where / walk.digest()
    build.mkdir(parents=True)
    (build / loading.LIST).write_text("{}")
    return build


def test_every_module_is_there() -> None:
    assert all(walk.file_of(module).is_file() for module in walk.MODULES)
    assert list(walk.MODULES) == sorted(set(walk.MODULES))


def test_without_a_build_the_sources_run(tmp_path: Path) -> None:
    before = list(sys.meta_path)
    assert not loading.use(tmp_path).compiled
    assert "llmgw edge compile" in loading.use(tmp_path / "never made").sentence
    assert "switched off" in loading.use(None).sentence
    assert sys.meta_path == before


def test_a_build_of_other_sources_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path)
    assert loading.form(tmp_path).compiled
    monkeypatch.setattr(walk, "ROOT", tmp_path / "other")
    for module in walk.MODULES:
        walk.file_of(module).parent.mkdir(parents=True, exist_ok=True)
        walk.file_of(module).write_text(f'"""Another {module}."""\n')
    assert "of other sources" in loading.form(tmp_path).sentence


def test_it_must_come_before_its_modules(tmp_path: Path) -> None:
    import gateway.core.router  # noqa: F401

    made(tmp_path)
    with pytest.raises(ImportError, match=r"before its modules, and gateway\.\S+ is imported already"):
        loading.use(tmp_path)


@pytest.mark.parametrize(
    ("compiler", "said"), [("no-such-cc", "a C compiler is needed and 'no-such-cc'"), ("false", "false failed")]
)
def test_what_is_missing_is_said_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str, said: str
) -> None:
    monkeypatch.setattr(walk, "MODULES", ("gateway.core.ids",))
    monkeypatch.setenv("CC", compiler)
    with pytest.raises(building.CannotCompile, match=said):
        building.build(tmp_path / "builds")
    assert not list(tmp_path.rglob("*.*"))


@pytest.mark.slow
def test_made_and_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    older = tmp_path / "older"
    older.mkdir()
    (older / loading.LIST).write_text("{}")
    monkeypatch.setattr(walk, "MODULES", SMALL)
    said: list[str] = []
    build = building.build(tmp_path, said.append)
    assert said[0] == "2 modules to C"
    assert said[-1].endswith("files to machine code")
    assert [path.name for path in tmp_path.iterdir()] == [build.name], "an older build goes"
    assert set(SMALL) <= set(json.loads((build / loading.LIST).read_bytes()))
    assert building.build(tmp_path, said.append) == build
    assert said[-1] == "these sources are compiled already"
    program = f"""
from pathlib import Path
from gateway.compiling import loading, walk
walk.MODULES = {SMALL!r}
form = loading.use(Path({str(tmp_path)!r}))
from gateway.core import ids
print(form.sentence, ids.__file__, ids.request_id(1, 2), sep="|")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    sentence, file, found = done.stdout.strip().split("|")
    assert sentence == f"compiled: 2 modules from {build.name}"
    assert Path(file).parent == build
    from gateway.core import ids

    assert found == ids.request_id(1, 2)


def test_where_it_lies(tmp_path: Path) -> None:
    def of(value: str) -> Path | None:
        this = read({"LLMGW_HOME": str(tmp_path), "LLMGW_COMPILED": value})
        assert isinstance(this, Machine)
        return this.compiled_dir

    assert of("") == tmp_path / "compiled"
    assert of("off") is None
    assert of("/srv/compiled") == Path("/srv/compiled")


@pytest.mark.skipif("LLMGW_TEST_COMPILED" not in os.environ, reason="this run takes the sources")
def test_this_run_takes_the_compiled_form() -> None:
    from gateway.edge import exchange

    assert exchange.__file__.endswith(walk.suffix())
