"""What an endpoint does with tools: whether the engine parses the model's calls, or the model ignores its tools."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from gateway.conform.target import CHAT, Answer, Target
from gateway.core import grammar, tool_calls
from gateway.core.tool_calls import Form, Said

WEATHER, ADD = "get_weather", "add"
MOST_TOKENS = 512
"""A model that thinks first needs some room before it calls."""


class Verdict(Enum):
    WORKS = "works"
    UNPARSED = "unparsed"
    """The model called, and the engine left the call in the text."""
    IGNORED = "ignored"
    """The model answered in words."""
    BROKEN = "broken"
    """There is a call, and nobody could carry it out."""
    REFUSED = "refused"
    """The endpoint refused the request."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one question. `said` is about what came, for people."""

    question: str
    verdict: Verdict
    said: str = ""
    form: Form | None = None


@dataclass(frozen=True, slots=True)
class Report:
    model: str
    engine: str
    """llamacpp, vllm, sglang as far as it says; empty: it does not."""
    outcomes: tuple[Outcome, ...] = field(default_factory=tuple)

    @property
    def verdict(self) -> Verdict:
        """The worst that explains the rest: a call left in the text even once is the engine's fault."""
        found = {o.verdict for o in self.outcomes}
        for verdict in (Verdict.UNPARSED, Verdict.BROKEN, Verdict.REFUSED, Verdict.IGNORED):
            if verdict in found:
                return verdict
        return Verdict.WORKS

    @property
    def sentence(self) -> str:
        match self.verdict:
            case Verdict.WORKS:
                return f"{self.model} calls its tools, whole and streamed."
            case Verdict.UNPARSED:
                form = next(o.form for o in self.outcomes if o.form is not None)
                return (
                    f"{self.model} calls its tools (as {form.name} models write it), and the engine does not parse it."
                )
            case Verdict.BROKEN:
                return f"{self.model} calls its tools, and a call came out broken: {self._first(Verdict.BROKEN)}."
            case Verdict.REFUSED:
                return f"The endpoint refuses tools: {self._first(Verdict.REFUSED)}."
        forced = any(o.verdict is Verdict.WORKS and o.question == FORCED for o in self.outcomes)
        rest = "; forced to, it does, so the engine is right" if forced else ""
        return f"{self.model} answers in words where its tools would serve{rest}."

    @property
    def fix(self) -> str:
        match self.verdict:
            case Verdict.UNPARSED:
                form = next(o.form for o in self.outcomes if o.form is not None)
                return FIXES.get(self.engine, _any_engine)(form)
            case Verdict.BROKEN:
                return (
                    "Try a newer version of the engine; until then ask for whole answers where only streams are broken."
                )
            case Verdict.REFUSED:
                return FIXES.get(self.engine, _any_engine)(None)
            case Verdict.IGNORED:
                return (
                    "This is the model, not the engine: choose one that was trained to call tools, describe the tools "
                    'better, or ask with tool_choice "required".'
                )
        return ""

    def document(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "engine": self.engine or None,
            "verdict": self.verdict.value,
            "works": self.verdict is Verdict.WORKS,
            "sentence": self.sentence,
            "fix": self.fix or None,
            "questions": [
                {"question": o.question, "verdict": o.verdict.value, "said": o.said, "form": o.form and o.form.name}
                for o in self.outcomes
            ],
        }

    def _first(self, verdict: Verdict) -> str:
        return next(o.said for o in self.outcomes if o.verdict is verdict)


def _llamacpp(form: Form | None) -> str:
    return (
        "Start llama-server with --jinja and the model's own chat template (--chat-template-file where the GGUF has an "
        "old one); a template without tools cannot be parsed."
    )


def _vllm(form: Form | None) -> str:
    parser = form.vllm if form is not None and form.vllm else "PARSER"
    return f"Start vLLM with --enable-auto-tool-choice --tool-call-parser {parser}."


def _sglang(form: Form | None) -> str:
    parser = form.sglang if form is not None and form.sglang else "PARSER"
    return f"Start SGLang with --tool-call-parser {parser}."


def _any_engine(form: Form | None) -> str:
    return f"The engine needs its tool-call parser: {_vllm(form)} {_sglang(form)} {_llamacpp(form)}"


FIXES: dict[str, Callable[[Form | None], str]] = {"llamacpp": _llamacpp, "vllm": _vllm, "sglang": _sglang}


def _tool(name: str, description: str, kind: str, *parameters: str) -> dict[str, Any]:
    properties = {parameter: {"type": kind} for parameter in parameters}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS = [
    _tool(WEATHER, "The weather in a city now.", "string", "city"),
    _tool(ADD, "The sum of two whole numbers.", "integer", "a", "b"),
]
ASKED, STREAMED, SECOND = "asked", "asked, streamed", "asked for another tool"
FORCED, FORCED_STREAM, ANSWERED, NONE = "forced", "forced, streamed", "given the result", "forbidden"
_PARIS = {"role": "user", "content": "What is the weather in Paris?"}
_SUM = {"role": "user", "content": "Add 17 and 25."}


def run(target: Target) -> Report:
    """Raises `Unreachable`."""
    engine = _engine(target)
    ask = _Asker(target)
    found = [
        ask.whole(ASKED, [_PARIS]),
        ask.stream(STREAMED, [_PARIS]),
        ask.whole(SECOND, [_SUM]),
    ]
    if found[0].verdict is not Verdict.REFUSED:
        found.append(ask.whole(FORCED, [_PARIS], tool_choice="required"))
        found.append(ask.stream(FORCED_STREAM, [_PARIS], tool_choice="required"))
        found.append(ask.answered())
        found.append(ask.forbidden())
    return Report(target.model, engine, tuple(found))


@dataclass(frozen=True, slots=True)
class _Asker:
    target: Target

    def whole(self, question: str, messages: list[dict[str, Any]], **fields: Any) -> Outcome:
        answer = self._ask(messages, **fields)
        return _refused(question, answer) or _judged(question, tool_calls.whole(answer.json))

    def stream(self, question: str, messages: list[dict[str, Any]], **fields: Any) -> Outcome:
        answer = self._ask(messages, stream=True, **fields)
        refused = _refused(question, answer)
        if refused is not None:
            return refused
        reading = grammar.read(answer.body, grammar.Asked())
        if reading.error is not None:
            return Outcome(question, Verdict.BROKEN, "the stream ends with an error")
        return _judged(question, tool_calls.streamed(reading.chunks))

    def answered(self) -> Outcome:
        """A tool's result is taken, and not answered with the same call again."""
        call = {"id": "call_1", "type": "function", "function": {"name": WEATHER, "arguments": '{"city": "Paris"}'}}
        messages: list[dict[str, Any]] = [
            _PARIS,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "12 degrees, rain"},
        ]
        answer = self._ask(messages)
        refused = _refused(ANSWERED, answer)
        if refused is not None:
            return refused
        said = tool_calls.whole(answer.json)
        form = tool_calls.left_in(said.text, (WEATHER, ADD)) if not said.calls else None
        if form is not None:
            return Outcome(ANSWERED, Verdict.UNPARSED, f"in the text: {said.text[:80]!r}", form)
        return Outcome(ANSWERED, Verdict.WORKS, "it went on with it")

    def forbidden(self) -> Outcome:
        answer = self._ask([_PARIS], tool_choice="none")
        refused = _refused(NONE, answer)
        if refused is not None:
            return refused
        said = tool_calls.whole(answer.json)
        if said.calls:
            return Outcome(NONE, Verdict.BROKEN, 'it calls a tool under tool_choice "none"')
        form = tool_calls.left_in(said.text, (WEATHER, ADD))
        if form is not None:
            return Outcome(
                NONE, Verdict.BROKEN, 'under tool_choice "none" the model is shown its tools and calls in text'
            )
        return Outcome(NONE, Verdict.WORKS, "it answered in words")

    def _ask(self, messages: list[dict[str, Any]], **fields: Any) -> Answer:
        asked = {"messages": messages, "tools": TOOLS, "max_tokens": MOST_TOKENS, **fields}
        return self.target.ask("POST", CHAT, self.target.chat(**asked))


def _refused(question: str, answer: Answer) -> Outcome | None:
    return None if answer.status == 200 else Outcome(question, Verdict.REFUSED, f"answered with {answer.said()}")


def _judged(question: str, said: Said) -> Outcome:
    names = (WEATHER, ADD)
    if said.broken:
        return Outcome(question, Verdict.BROKEN, said.broken)
    if not said.calls:
        form = tool_calls.left_in(said.text, names)
        if form is not None:
            return Outcome(question, Verdict.UNPARSED, f"in the text: {said.text.strip()[:80]!r}", form)
        return Outcome(question, Verdict.IGNORED, f"it said {said.text.strip()[:80]!r}")
    problem = next(filter(None, (call.problem(names) for call in said.calls)), "")
    if not problem and said.ending != "tool_calls":
        problem = f"the answer calls a tool and ends with {said.ending!r}"
    if problem:
        return Outcome(question, Verdict.BROKEN, problem)
    return Outcome(question, Verdict.WORKS, ", ".join(f"{c.name}({c.arguments})" for c in said.calls))


_OWNERS = {"llamacpp": "llamacpp", "vllm": "vllm", "sglang": "sglang"}


def _engine(target: Target) -> str:
    """By `owned_by` in its list of models; also the first model's name, where none was given."""
    answer = target.ask("GET", "/v1/models")
    listed = answer.json.get("data") if isinstance(answer.json, dict) else None
    models = [m for m in listed or [] if isinstance(m, dict) and m.get("id")]
    target.model = target.model or (str(models[0]["id"]) if models else "")
    return next((_OWNERS[owner] for m in models if (owner := str(m.get("owned_by"))) in _OWNERS), "")
