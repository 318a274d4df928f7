"""The grammar of a streamed answer: which of its rules some bytes keep, break, or leave open. Pure.

The rules are those of docs/streams.md, by number. A rule that nothing in the stream could have broken is open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import msgspec

CHAT, COMPLETIONS = "chat", "completions"
OBJECTS = {CHAT: "chat.completion.chunk", COMPLETIONS: "text_completion"}
ENDINGS = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})
_FIELDS = frozenset({"data", "event", "id", "retry", ""})
_SAID = ("content", "refusal", "reasoning", "reasoning_content", "tool_calls", "function_call")


class Verdict(Enum):
    HELD = "held"
    BROKEN = "broken"
    OPEN = "open"
    """It could not be told."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one rule, and the first fault in a sentence."""

    rule: str
    verdict: Verdict
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the request asked for."""

    endpoint: str = CHAT
    usage: bool = False
    choices: int = 1


@dataclass(slots=True)
class Reading:
    """A stream taken apart: chunks in order, and what else was met."""

    asked: Asked
    text: bytes
    chunks: list[dict[str, Any]] = field(default_factory=list)
    error: Any = None
    ends: list[int] = field(default_factory=list)
    """After how many events each `[DONE]` came."""
    events: int = 0
    framing: str = ""
    not_json: str = ""

    def deltas(self) -> list[tuple[int, dict[str, Any], Any]]:
        """Choice, what it says, its ending; in order."""
        found = []
        for chunk in self.chunks:
            for choice in _list(chunk.get("choices")):
                said = choice.get("delta") if self.asked.endpoint == CHAT else {"content": choice.get("text")}
                index = choice.get("index")
                found.append((index if isinstance(index, int) else -1, said or {}, choice.get("finish_reason")))
        return found


def check(body: bytes, asked: Asked) -> list[Finding]:
    """One finding a rule, in the rules' order."""
    reading = read(body, asked)
    found = []
    for rule, (_, judge) in RULES.items():
        said = judge(reading)
        verdict = Verdict.HELD if said is None else Verdict.OPEN if isinstance(said, Open) else Verdict.BROKEN
        found.append(Finding(rule, verdict, said or ""))
    return found


def broken(body: bytes, asked: Asked) -> list[Finding]:
    """The rules that `body` breaks."""
    return [f for f in check(body, asked) if f.verdict is Verdict.BROKEN]


def read(body: bytes, asked: Asked) -> Reading:
    found = Reading(asked, body)
    text = body.decode(errors="replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    *whole, rest = text.split("\n\n")
    if rest.strip("\n"):
        found.framing = f"the last event is not ended by a blank line: {rest[-60:]!r}"
    for event in whole:
        _read_event(found, event)
    return found


def _read_event(found: Reading, event: str) -> None:
    data = []
    for line in event.split("\n"):
        name, _, value = line.partition(":")
        if name not in _FIELDS:
            found.framing = found.framing or f"a line is no field of an event: {line[:60]!r}"
        elif name == "data":
            data.append(value.removeprefix(" "))
    if not data:
        return
    found.events += 1
    said = "\n".join(data)
    if said.strip() == "[DONE]":
        found.ends.append(found.events)
        return
    try:
        chunk = msgspec.json.decode(said.encode())
    except (msgspec.MsgspecError, ValueError, RecursionError):
        chunk = None
    if not isinstance(chunk, dict):
        found.not_json = found.not_json or f"an event is no JSON object: {said[:60]!r}"
    elif chunk.get("error") and not chunk.get("choices"):
        found.error = (found.events, chunk["error"])
    else:
        found.chunks.append(chunk)


class Open(str):
    """Why a rule could not be judged."""


Judge = Callable[[Reading], "str | None"]


def framing(r: Reading) -> str | None:
    return r.framing or (None if r.events else Open("there was no event"))


def utf8(r: Reading) -> str | None:
    try:
        text = r.text.decode()
    except UnicodeDecodeError as e:
        return f"the bytes at {e.start} are no UTF-8"
    if "\ufffd" in text:
        return Open("a replacement character came: the model's own, or one that was decoded by halves")
    return Open("no character longer than a byte came") if text.isascii() else None


def json(r: Reading) -> str | None:
    return r.not_json or (None if r.events else Open("there was no event"))


def fields(r: Reading) -> str | None:
    if not r.chunks:
        return Open("there was no chunk")
    wanted = OBJECTS[r.asked.endpoint]
    for chunk in r.chunks:
        for name, kind in (("id", str), ("created", int), ("model", str), ("choices", list)):
            if not isinstance(chunk.get(name), kind):
                return f"a chunk's `{name}` is {chunk.get(name)!r}"
        if chunk.get("object") != wanted:
            return f"a chunk's `object` is {chunk.get('object')!r} and not '{wanted}'"
        if chunk["id"] != r.chunks[0]["id"]:
            return "the chunks of one answer have different ids"
    return None


def role(r: Reading) -> str | None:
    if r.asked.endpoint != CHAT:
        return Open("completions have no roles")
    seen: set[int] = set()
    for index, said, _ in r.deltas():
        if index not in seen and said.get("role") != "assistant":
            return f"the first delta of choice {index} has the role {said.get('role')!r}"
        if said.get("role") not in (None, "assistant"):
            return f"a delta has the role {said['role']!r}"
        seen.add(index)
    return None if seen else Open("there was no delta")


def finish(r: Reading) -> str | None:
    if r.error is not None:
        return Open("the stream ended with an error")
    begun, ended = set(), set()
    for index, _, ending in r.deltas():
        begun.add(index)
        if ending is None:
            continue
        if ending not in ENDINGS:
            return f"choice {index} ends with {ending!r}, which is not one of {', '.join(sorted(ENDINGS))}"
        if index in ended:
            return f"choice {index} ends twice"
        ended.add(index)
    if not begun:
        return "there was no choice at all"
    return f"choice {min(begun - ended)} has no finish_reason" if begun - ended else None


def after_finish(r: Reading) -> str | None:
    ended = set()
    for index, said, ending in r.deltas():
        if index in ended and any(said.get(name) for name in _SAID):
            return f"choice {index} goes on after its finish_reason"
        if ending is not None:
            ended.add(index)
    return None if ended else Open("no choice ended")


def indices(r: Reading) -> str | None:
    found = {index for index, _, _ in r.deltas()}
    if not found:
        return Open("there was no choice")
    wanted = set(range(r.asked.choices))
    if r.error is not None and found <= wanted:
        return None
    return None if found == wanted else f"the choices are {sorted(found)} where {sorted(wanted)} were asked for"


def tools(r: Reading) -> str | None:
    calls: dict[tuple[int, int], dict[str, str]] = {}
    for index, said, _ in r.deltas():
        for part in _list(said.get("tool_calls")):
            at = part.get("index")
            if not isinstance(at, int):
                return f"a tool call's delta has the index {at!r}"
            function = part.get("function") or {}
            if (index, at) not in calls:
                if not part.get("id") or part.get("type", "function") != "function" or not function.get("name"):
                    return f"tool call {at} begins without id, type or name"
                calls[index, at] = {"id": part["id"], "arguments": ""}
            elif part.get("id") not in (None, "", calls[index, at]["id"]):
                return f"tool call {at} changes its id"
            calls[index, at]["arguments"] += function.get("arguments") or ""
    if not calls:
        return Open("no tool was called")
    if r.error is not None:
        return Open("the stream ended with an error")
    for (_, at), call in calls.items():
        try:
            whole = msgspec.json.decode(call["arguments"] or "{}")
        except (msgspec.MsgspecError, ValueError):
            whole = None
        if not isinstance(whole, dict):
            return f"the arguments of tool call {at} are no JSON object: {call['arguments'][:60]!r}"
    return None


def usage(r: Reading) -> str | None:
    counted = [c for c in r.chunks if c.get("usage") is not None]
    if not r.asked.usage:
        bare = [c for c in r.chunks if "usage" in c]
        return f"a chunk has `usage` though nobody asked: {bare[0]['usage']!r}" if bare else None
    if r.error is not None:
        return Open("the stream ended with an error")
    if len(counted) != 1:
        return f"{len(counted)} chunks have counts where one was asked for"
    if counted[0].get("choices") != []:
        return "the chunk with the counts has choices"
    if counted[0] is not r.chunks[-1]:
        return "chunks follow the one with the counts"
    counts = counted[0]["usage"]
    figures = [counts.get(k) for k in ("prompt_tokens", "completion_tokens", "total_tokens")]
    if not all(isinstance(x, int) and not isinstance(x, bool) and x >= 0 for x in figures):
        return f"the counts are no whole numbers: {figures}"
    return None if figures[0] + figures[1] == figures[2] else f"the counts do not add up: {figures}"


def done(r: Reading) -> str | None:
    if r.error is not None:
        return None if r.error[0] == r.events - len(r.ends) else "events follow the error"
    if not r.ends:
        return "there is no [DONE]"
    if len(r.ends) > 1:
        return f"there are {len(r.ends)} [DONE]"
    return None if r.ends[0] == r.events else "events follow [DONE]"


def error(r: Reading) -> str | None:
    if r.error is None:
        return Open("the stream ended without an error")
    said = r.error[1]
    if not isinstance(said, dict) or not isinstance(said.get("message"), str) or not isinstance(said.get("type"), str):
        return f"the error has no message and type: {str(said)[:80]}"
    return None


RULES: dict[str, tuple[str, Judge]] = {
    "S1": ("lines are fields of events, and a blank line ends each event", framing),
    "S2": ("UTF-8, no character cut in two", utf8),
    "S3": ("the data of each event is one JSON object or [DONE]", json),
    "S4": ("each chunk has id, object, created, model, choices; one id", fields),
    "S5": ("the first delta of each choice has the role", role),
    "S6": ("each choice ends once, with a finish_reason of OpenAI's set", finish),
    "S7": ("a choice says nothing after its finish_reason", after_finish),
    "S8": ("the choices are those that were asked for", indices),
    "S9": ("tool calls begin with id and name, and their arguments are JSON", tools),
    "S10": ("counts once and last, in a chunk without choices, and only when asked for", usage),
    "S11": ("one [DONE], last; nothing after it or after an error", done),
    "S12": ("an error in-band has OpenAI's shape", error),
}


def _list(value: Any) -> list[dict[str, Any]]:
    return [x for x in value if isinstance(x, dict)] if isinstance(value, list) else []
