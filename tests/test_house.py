"""The house itself: pins, words, commands."""

from __future__ import annotations

import re
import subprocess
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class

ROOT = Path(__file__).resolve().parent.parent
OURS = ("llmgw.", "catalog", "fleet", "gateway", "tenancy", "mirror")


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=!\[; ]", line, maxsplit=1)[0].lower() for line in requirements}


def _lines(name: str) -> list[str]:
    text = (ROOT / "requirements" / f"{name}.in").read_text()
    return [x for x in text.splitlines() if x and not x.startswith(("#", "-r"))]


def test_the_pins_are_for_what_the_project_declares() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert _names(_lines("base")) == _names(project["dependencies"])
    assert _names(_lines("server")) == _names(project["optional-dependencies"]["server"])
    assert _names(_lines("up")) >= _names(project["optional-dependencies"]["onebox"])


@pytest.mark.parametrize("name", ["base", "up", "test"])
def test_every_pin_has_hashes_and_no_address(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    assert "://" not in text
    for pin in re.split(r"\n(?=[a-z])", text.strip()):
        assert "==" in pin.splitlines()[0]
        assert "--hash=sha256:" in pin


def _tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in done.stdout.split("\0") if name]


def test_no_place_of_one_machine_and_no_registry_is_named() -> None:
    words = [
        "/ro" + "ot/",
        "/wo" + "rk/",
        "pypi." + "org",
        "python" + "hosted.org",
        "npmjs" + ".org",
        "deb.debian" + ".org",
    ]
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in _tracked()
        if path.is_file()
        for word in words
        if word.encode() in path.read_bytes()
    ]
    assert not found


def _commands() -> list[str]:
    return [name for name, app in get_commands().items() if isinstance(app, str) and app.startswith(OURS)]


@pytest.mark.parametrize("name", _commands())
def test_every_command_helps(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = load_command_class(get_commands()[name], name)
    with pytest.raises(SystemExit) as ended:
        command.run_from_argv(["llmgw", name, "--help"])
    assert ended.value.code in (0, None)
    shown = capsys.readouterr().out
    assert "usage:" in shown
    module = import_module(type(command).__module__)
    assert module.__doc__, f"{name}: say in the docstring what it is for"


def test_the_commands_that_are_promised_exist() -> None:
    promised = {"up", "down", "logs", "status", "node", "model", "replica", "org", "team", "project", "key"}
    promised |= {"user", "cert", "config", "request", "explain-placement", "why"}
    assert not promised - set(_commands())
