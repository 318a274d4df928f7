"""`llmgw cache lint`: requests from a file or of a project, and what breaks their prefixes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gateway.actions import lint
from gateway.core.lint import prompt
from gateway.core.lint.judge import judge
from llmgw.cluster.commands import actor
from llmgw.cluster.errors import Invalid
from tenancy import selectors


def run(file: str, project: str) -> dict[str, Any]:
    """The judgement as `--json` tells it."""
    if bool(file) == bool(project):
        raise Invalid("bad_source", "name a file (- for the standard input), or --project, and not both")
    if project:
        return asdict(lint.project(project=selectors.project(project), actor=actor()))
    try:
        lines = sys.stdin if file == "-" else Path(file).read_text(encoding="utf-8").splitlines()
        return asdict(judge(_prompts(lines)))
    except (OSError, UnicodeDecodeError) as e:
        raise Invalid("bad_file", f"{file} cannot be read: {e}") from None


def show(found: dict[str, Any]) -> None:
    what = f"{found['requests']} requests, {found['sessions']} sessions, about {found['prompt_tokens']} prompt tokens"
    print(f"{what}; {found['compared']} pairs compared")
    for each in found["findings"]:
        where = f"character {each['at_character']} (byte {each['at_byte']} of the prompt)"
        print(f"\n{each['code']}  {each['path']}, {where}")
        if each["times"]:
            print(f"  {each['times']} times, about {each['lost_tokens']} tokens read anew")
            print(f"  worst from {each['before']} to {each['request']}: {each['was']!r} became {each['now']!r}")
        else:
            print(f"  {each['request']}: {each['now']!r} looks as if it were another each time")
        print(f"  {each['advice']}")
    if not found["findings"]:
        print("nothing breaks their prefixes")


def _prompts(lines: Iterable[str]) -> Iterator[prompt.Prompt]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            said = json.loads(line)
        except ValueError as e:
            raise Invalid("bad_line", f"line {number} is not JSON: {e}") from None
        if not isinstance(said, dict):
            raise Invalid("bad_line", f"line {number} must be a request's body, and is no object")
        inner = said.get("body")
        body: dict[str, Any] = inner if isinstance(inner, dict) else said
        name = str(said.get("custom_id") or said.get("id") or f"line {number}")
        found = prompt.read(name, f"{body.get('model', '')} {said.get('session', '')}", body)
        if found is not None:
            yield found
