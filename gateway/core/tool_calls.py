"""Tool calls in an answer: those the engine took out of the model's text, and those it left in it. Pure.

A model writes a call in the form that its template taught it; the engine must know that form (its tool-call parser), or
the call comes out as text. The forms and the parsers' names are those of vLLM's and SGLang's documentation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Form:
    """How some family of models writes a call. Empty: that engine has no parser for it."""

    name: str
    pattern: re.Pattern[str]
    vllm: str = ""
    sglang: str = ""


def _form(name: str, pattern: str, vllm: str = "", sglang: str = "") -> Form:
    return Form(name, re.compile(pattern, re.DOTALL), vllm, sglang)


FORMS: tuple[Form, ...] = (
    _form("Qwen3-Coder", r"<tool_call>\s*<function=|<function=[\w.-]+>", "qwen3_coder", "qwen3_coder"),
    _form("GLM", r"<tool_call>\s*[\w.-]+\s*<arg_key>", "glm45", "glm45"),
    _form("Hermes", r"<tool_call>\s*\{", "hermes", "qwen25"),
    _form("Mistral", r"\[TOOL_CALLS\]", "mistral", "mistral"),
    _form("DeepSeek", r"<｜tool▁calls?▁begin｜>", "deepseek_v3", "deepseekv3"),
    _form("Kimi", r"<\|tool_calls?_(section_)?begin\|>", "kimi_k2", "kimi_k2"),
    _form("gpt-oss", r"<\|channel\|>commentary to=functions|to=functions\.[\w.-]+", "openai", "gpt-oss"),
    _form("InternLM", r"<\|action_start\|>", "internlm"),
    _form("Granite", r"<\|tool_call\|>|<tool_call>\s*\[", "granite"),
    _form("MiniMax", r"<tool_calls>\s*\{|<minimax:tool_call>", "minimax"),
    _form("Jamba", r"<tool_calls>\s*\[", "jamba"),
    _form("Phi-4", r"functools\s*\[", "phi4_mini_json"),
    _form("Llama 3", r"<\|python_tag\|>", "llama3_json", "llama3"),
)
_OBJECT = re.compile(r"[\[{]")


@dataclass(frozen=True, slots=True)
class Call:
    id: str
    name: str
    arguments: str

    def problem(self, offered: Iterable[str]) -> str:
        """Why it cannot be carried out; empty when it can."""
        if not self.id:
            return "a call has no id"
        if self.name not in offered:
            return f"it calls {self.name[:60]!r}, which was not offered"
        try:
            found = json.loads(self.arguments)
        except (ValueError, RecursionError):
            return f"the arguments of {self.name} are no JSON: {self.arguments[:60]!r}"
        return "" if isinstance(found, dict) else f"the arguments of {self.name} are no object: {self.arguments[:60]!r}"


@dataclass(slots=True)
class Said:
    """One answer: its text, its calls and its ending. `broken`: what was wrong with the calls as they came."""

    text: str = ""
    calls: list[Call] = field(default_factory=list)
    ending: str = ""
    broken: str = ""


def whole(answer: Any) -> Said:
    """The first choice of a whole answer."""
    choice = _first(answer)
    message = choice.get("message")
    message = message if isinstance(message, dict) else {}
    said = Said(_text(message.get("content")), ending=str(choice.get("finish_reason") or ""))
    for entry in message.get("tool_calls") or []:
        function = entry.get("function") if isinstance(entry, dict) else None
        if not isinstance(function, dict):
            said.broken = "an entry of tool_calls has no function"
            continue
        said.calls.append(Call(_text(entry.get("id")), _text(function.get("name")), _text(function.get("arguments"))))
    return said


def streamed(chunks: Iterable[Any]) -> Said:
    """The first choice of a stream, its deltas put together as clients do: by `index`."""
    said, calls = Said(), dict[int, dict[str, str]]()
    for chunk in chunks:
        choice = _first(chunk)
        said.ending = str(choice.get("finish_reason") or said.ending)
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            continue
        said.text += _text(delta.get("content"))
        for entry in delta.get("tool_calls") or []:
            index = entry.get("index") if isinstance(entry, dict) else None
            if not isinstance(index, int):
                said.broken = said.broken or "a piece of a call has no index"
                continue
            call = calls.setdefault(index, {"id": "", "name": "", "arguments": ""})
            function = entry.get("function") or {}
            if entry.get("id"):
                call["id"] = call["id"] or _text(entry["id"])
            call["name"] += _text(function.get("name"))
            call["arguments"] += _text(function.get("arguments"))
    said.calls = [Call(**calls[index]) for index in sorted(calls)]
    return said


def left_in(text: str, offered: Iterable[str]) -> Form | None:
    """The form of a call that stands in an answer's text; None where there is none."""
    for form in FORMS:
        if form.pattern.search(text):
            return form
    names = set(offered)
    if any(re.search(rf"\[\s*{re.escape(name)}\(", text) for name in names):
        return _PYTHONIC
    return _BARE if any(_calls(found, names) for found in _objects(text)) else None


_PYTHONIC = _form("Python", r"", "pythonic", "pythonic")
_BARE = _form("bare JSON", r"", "llama3_json", "llama3")


def _objects(text: str) -> Iterable[Any]:
    decoder = json.JSONDecoder()
    for found in _OBJECT.finditer(text):
        try:
            yield decoder.raw_decode(text, found.start())[0]
        except (ValueError, RecursionError):
            continue


def _calls(found: Any, names: set[str]) -> bool:
    if isinstance(found, list):
        return any(_calls(entry, names) for entry in found)
    if not isinstance(found, dict):
        return False
    inner = found.get("function")
    name = found.get("name") or (inner.get("name") if isinstance(inner, dict) else inner)
    return isinstance(name, str) and name in names


def _first(answer: Any) -> dict[str, Any]:
    choices = answer.get("choices") if isinstance(answer, dict) else None
    found = choices[0] if isinstance(choices, list) and choices else None
    return found if isinstance(found, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)
