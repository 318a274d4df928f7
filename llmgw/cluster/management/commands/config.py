"""`llmgw config`: the cluster's settings, in force within seconds and without a restart."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from llmgw.cluster import selectors
from llmgw.cluster.actions import settings
from llmgw.cluster.commands import NounCommand, actor
from llmgw.cluster.core import settings as core
from llmgw.cluster.core.sections import BadSettings
from llmgw.cluster.errors import Conflict, Invalid, NotFound


class Command(NounCommand):
    help = "Settings of the whole cluster: each save is a version that can be gone back to."
    examples = (
        "  llmgw config get\n"
        "  llmgw config get gateway.retries\n"
        "  llmgw config set gateway.retries 3 --note 'flaky network'\n"
        "  llmgw config set gateway.retries default\n"
        "  llmgw config edit\n"
        "  llmgw config history\n"
        "  llmgw config rollback 4"
    )

    def build(self) -> None:
        get = self.verb("get", _get, "what is in force: everything, or one value", show=_yaml)
        get.add_argument("path", nargs="?", default="", help="like gateway.retries; without it, everything")
        put = self.verb("set", _set, "change one value")
        put.add_argument("path", help="like gateway.retries")
        put.add_argument("value", help="as YAML; `default` takes it back to its default")
        put.add_argument("--note", default="", help="why; kept in the history")
        edit = self.verb("edit", _edit, "change what was set, in an editor")
        edit.add_argument("--note", default="", help="why; kept in the history")
        self.verb("history", selectors.revisions, "every version, newest first")
        self.verb("rollback", _rollback, "an earlier version again, as a new one").add_argument("version", type=int)


def _get(path: str) -> dict[str, Any]:
    version, document = settings.current()
    try:
        value = core.get(document, path)
    except BadSettings as e:
        raise NotFound("no_such_setting", str(e), "llmgw config get") from None
    return {"version": version, "path": path, "value": value}


def _yaml(found: dict[str, Any]) -> None:
    text = yaml.safe_dump(found["value"], sort_keys=False, allow_unicode=True, default_flow_style=False)
    sys.stdout.write(text.removesuffix("...\n"))


def _set(path: str, value: str, note: str) -> dict[str, Any]:
    try:
        parsed = core.DEFAULT if value == "default" else yaml.safe_load(value)
    except yaml.YAMLError as e:
        raise Invalid("bad_yaml", f"the value is not YAML: {' '.join(str(e).split())}") from None
    row = settings.put(path=path, value=parsed, actor=actor(), note=note)
    return {"version": row.version, "path": path, "value": core.get(row.document, path)}


def _rollback(version: int) -> dict[str, Any]:
    row = settings.rollback(version=version, actor=actor())
    return {"version": row.version, "note": row.note}


def _edit(note: str) -> dict[str, Any] | None:
    base, document = settings.current()
    head = f"# What differs from the defaults, at version {base}. `llmgw config get` shows everything.\n"
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True) if document else ""
    changed = _edited(head + text)
    try:
        found = yaml.safe_load(changed) or {}
    except yaml.YAMLError as e:
        raise Invalid("bad_yaml", f"what was written is not YAML: {' '.join(str(e).split())}") from None
    if not isinstance(found, dict):
        raise Invalid("bad_settings", f"the settings are names and values, not a {type(found).__name__}")
    if found == document:
        return {"version": base, "note": "nothing was changed"}
    row = settings.save(document=found, base=base, actor=actor(), note=note or "edited")
    return {"version": row.version, "note": row.note}


def _edited(text: str) -> str:
    """`text` as it comes back from the person's editor."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="llmgw-config-") as folder:
        path = Path(folder) / "settings.yaml"
        path.write_text(text)
        try:
            done = subprocess.run([*shlex.split(editor), str(path)], check=False)
        except OSError as e:
            raise Conflict("no_editor", f"the editor {editor} cannot be started: {e.strerror}; set EDITOR") from None
        if done.returncode != 0:
            raise Conflict("editor_failed", f"the editor {editor} ended with {done.returncode}; nothing was changed")
        return path.read_text()
