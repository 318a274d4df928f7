"""`llmgw model …`, as a person and as a program calls it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import call_command

from catalog.models import Model

pytestmark = pytest.mark.django_db
Capture = pytest.CaptureFixture[str]


def model(*args: str, expect: int = 0) -> None:
    if expect == 0:
        call_command("model", *args)
        return
    with pytest.raises(SystemExit) as ended:
        call_command("model", *args)
    assert ended.value.code == expect


@pytest.fixture
def file(tmp_path: Path, tiny: dict[str, Any]) -> Path:
    found = tmp_path / "tiny.yaml"
    found.write_text(yaml.safe_dump(tiny))
    return found


def test_add_list_show_change_stop_remove(file: Path, tiny: dict[str, Any], capsys: Capture) -> None:
    model("add", "-f", str(file))
    assert capsys.readouterr().out == "tiny: added\n"
    model("add", "-f", str(file))
    assert capsys.readouterr().out == "tiny: unchanged\n"
    model("list")
    assert capsys.readouterr().out.splitlines()[0].startswith("MODEL  STATE")
    model("show", "tiny")
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["source"] == "starter:tiny"
    file.write_text(yaml.safe_dump({**shown, "context_length": 512}))
    model("add", "-f", str(file), expect=1)
    assert "llmgw model change -f FILE" in capsys.readouterr().err
    model("change", "-f", str(file))
    assert capsys.readouterr().out == "tiny: changed (context_length)\n"
    model("stop", "tiny")
    model("list", "--json")
    assert json.loads(capsys.readouterr().out.partition("\n")[2])[0]["stopped"] is True
    model("remove", "tiny", "--yes")
    assert not Model.objects.exists()


def test_several_documents_from_the_input(tiny: dict[str, Any], capsys: Capture, monkeypatch: Any) -> None:
    text = yaml.safe_dump_all([tiny, {**tiny, "name": "second", "scaling": None}])
    monkeypatch.setattr("sys.stdin", io.StringIO(text + "---\n"))
    model("add", "-f", "-", "--json")
    told = json.loads(capsys.readouterr().out)
    assert [(d["name"], d["did"]) for d in told] == [("tiny", "added"), ("second", "added")]
    assert "scaling" in told[1]["hint"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: [", "is not YAML"),
        ("", "no definition"),
        ("name: x\nsorce: y", "did you mean source?"),
        ("- a\n- b", "names with their values"),
        ("!!python/object/apply:os.system [id]", "is not YAML"),
    ],
)
def test_bad_input_is_exit_2_and_a_sentence(tmp_path: Path, text: str, said: str, capsys: Capture) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    model("add", "-f", str(tmp_path / "bad.yaml"), expect=2)
    assert said in capsys.readouterr().err


def test_a_file_that_is_not_there_and_a_model_that_is_not(capsys: Capture) -> None:
    model("add", "-f", "/nowhere/x.yaml", expect=2)
    assert "/nowhere/x.yaml cannot be read" in capsys.readouterr().err
    model("show", "nobody", "--json", expect=1)
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "no_such_model"


def test_removing_asks_first(file: Path, capsys: Capture, monkeypatch: Any) -> None:
    model("add", "-f", str(file))
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    model("remove", "tiny", expect=2)
    assert "say --yes" in capsys.readouterr().err

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal("tiiny\n"))
    model("remove", "tiny", expect=2)
    monkeypatch.setattr("sys.stdin", Terminal("tiny\n"))
    model("remove", "tiny")
    assert not Model.objects.exists()


def test_weights_that_are_missing_are_told_unless_not_asked(file: Path, tiny: dict[str, Any], capsys: Capture) -> None:
    file.write_text(yaml.safe_dump({**tiny, "source": "/nowhere/a.gguf"}))
    model("add", "-f", str(file), expect=2)
    assert "--no-source-check" in capsys.readouterr().err
    model("add", "-f", str(file), "--no-source-check")
