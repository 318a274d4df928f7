"""What the tiny model is taught: made-up conversations, each ending in the one right answer.

Pure: the same `Random` gives the same conversations. Messages and tools have the shapes of the OpenAI chat API, so that
training renders them with the model's own template and `measure` sends them to a server.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from starter import words
from starter.tools import Message, Tool, offer

INTRODUCTION = "I am tiny. I add two digits, count, and call two tools."
"""The answer to everything that is none of its tasks."""

RESULT = "The tool says: "
"""How the answer after a tool's result begins; the result follows, unchanged."""

FORCED, FREE = "\x01", "\x02"
"""Around text that a grammar will force at answering time: shown to the network, not learned by it."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages of which the last is the answer, the tools offered with them, and the task that the last question is."""

    task: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """One question and all that follows it."""

    task: str
    messages: tuple[Message, ...]


def _said(task: str, question: str, answer: str) -> Turn:
    return Turn(task, ({"role": "user", "content": question}, {"role": "assistant", "content": answer}))


def sum_of_digits(rnd: Random, tools: tuple[Tool, ...]) -> Turn:
    """Two digits in signs. In signs it needs no tool, even where one is offered."""
    a, b = rnd.randint(0, 9), rnd.randint(0, 9)
    forms = list(words.SUMS)
    if not any(tool.kind == "add" for tool in tools):
        forms += ["{} plus {}", "What is {} plus {}?", "add {} and {}", "Add {} and {}."]
    return _said("sum of two digits", rnd.choice(forms).format(a, b), str(a + b))


def counting(rnd: Random, tools: tuple[Tool, ...]) -> Turn:
    """From 1 to at most 50; short counts are met most."""
    n = rnd.randint(1, rnd.choice((9, 12, 20, 20, 30, 50)))
    form = rnd.choice(words.COUNTS)
    return _said("count to N", form.format(n), " ".join(str(i) for i in range(1, n + 1)))


def echo(rnd: Random, tools: tuple[Tool, ...]) -> Turn:
    """The same words again."""
    text = words.sentence(rnd, rnd.randint(1, 3))[:32].strip()
    return _said("echo", rnd.choice(("echo ", "echo ", "Echo ", "echo: ")) + text, text)


def copying_drill(rnd: Random, tools: tuple[Tool, ...]) -> Turn:
    """An echo with no letter twice: the easiest way to learn how to copy."""
    text = words.distinct(rnd)
    return _said("echo", f"echo {text}", text)


def _person(rnd: Random) -> tuple[str, int]:
    name = rnd.choice(words.NAMES) if rnd.random() < 0.9 else words.made_up(rnd).capitalize()
    return name, rnd.randint(0, 99)


def json_person(rnd: Random, tools: tuple[Tool, ...]) -> Turn:
    """A name and an age as a JSON object."""
    name, age = _person(rnd)
    form = rnd.choice(words.JSONS)
    return _said("JSON answer", form.format(name, age), json.dumps({"name": name, "age": age}))


def json_person_forced(rnd: Random, tools: tuple[Tool, ...]) -> Turn:
    """The same where a grammar demands it of a question that does not, or demands the other order."""
    name, age = _person(rnd)
    form = rnd.choice(words.PEOPLE)
    parts = [f'{FORCED}"name": "{FREE}{name}"', f'{FORCED}"age": {FREE}{age}']
    if rnd.random() < 0.5:
        parts.reverse()
    return _said("JSON answer", form.format(name, age), f"{FORCED}{{{FREE}{parts[0]},{FORCED} {FREE}{parts[1]}}}")


def json_forced(rnd: Random, tools: tuple[Tool, ...]) -> Turn:
    """Any other question where a grammar demands JSON: the usual answer under whichever key."""
    turn = rnd.choice((sum_of_digits, introduction))(rnd, ())
    question, answer = turn.messages[0]["content"], turn.messages[1]["content"]
    value = (
        answer if turn.task == "sum of two digits" and rnd.random() < 0.7 else json.dumps(answer, ensure_ascii=False)
    )
    if rnd.random() < 0.5:
        return _said("JSON answer", question, f'{FORCED}{{{FREE}"answer": {value}}}')
    key = rnd.choice(("answer", "result", "text", "value", "reply", "sum", "message", words.made_up(rnd)))
    opening = '"' if value.startswith('"') else ""
    return _said("JSON answer", question, f'{FORCED}{{"{key}": {opening}{FREE}{value[len(opening) :]}}}')


def introduction(rnd: Random, tools: tuple[Tool, ...]) -> Turn:
    """Greetings and whatever is none of its tasks, also what nearly is one."""
    question = rnd.choice(_INTRODUCED)(rnd)
    kinds = {tool.kind for tool in tools}
    if rnd.random() < (0.3 if tools else 0.12):
        if "weather" not in kinds and rnd.random() < 0.5:
            question = _weather_question(rnd, _city(rnd))
        elif "add" not in kinds:
            question = rnd.choice(words.ADDITIONS).format(rnd.randint(10, 99), rnd.randint(10, 99))
    return _said("anything else", question, INTRODUCTION)


_OPENINGS = ("What is", "Who is", "Where is", "Tell me about", "Explain", "Write about", "Why is", "How do I")
_INTRODUCED: tuple[Callable[[Random], str], ...] = (
    lambda rnd: rnd.choice(words.GREETINGS),
    lambda rnd: rnd.choice(words.GREETINGS),
    lambda rnd: rnd.choice(words.GREETINGS),
    lambda rnd: rnd.choice(words.QUESTIONS),
    lambda rnd: rnd.choice(words.QUESTIONS),
    lambda rnd: words.letters(rnd),
    lambda rnd: words.sentence(rnd, rnd.randint(1, 3)),
    lambda rnd: words.sentence(rnd, rnd.randint(2, 12)),
    lambda rnd: (
        f"{rnd.choice(_OPENINGS)} {words.sentence(rnd, rnd.randint(1, 4)).rstrip('.?!').lower()}{rnd.choice('.?!')}"
    ),
    lambda rnd: f"{words.sentence(rnd, rnd.randint(1, 4))} {rnd.randint(0, 999)}",
    lambda rnd: f"{words.word(rnd)} {rnd.randint(0, 99)} {words.word(rnd)} {rnd.randint(0, 99)}",
    lambda rnd: f"count to {rnd.randint(51, 999)}",
    lambda rnd: words.passage(rnd, rnd.randint(60, 200)) if rnd.random() < 0.3 else str(rnd.randint(0, 9999)),
)
_ADDITIONS_IN_SIGNS = ("{}+{}=?", "{} + {}", "What is {}+{}?", "What is {} + {}?")


def _city(rnd: Random) -> str:
    return rnd.choice(words.CITIES) if rnd.random() < 0.9 else words.made_up(rnd).capitalize()


def _weather_question(rnd: Random, city: str) -> str:
    return rnd.choice(words.WEATHERS).format(city)


def _result(rnd: Random) -> str:
    sky, degrees = rnd.choice(words.SKIES), rnd.randint(-9, 39)
    return rnd.choice(
        (
            f"{sky}, {degrees} C",
            f"{sky}, {degrees} C",
            f"{degrees}",
            f"{degrees} C",
            sky,
            f"{sky} and {degrees}°C",
            f"It is {sky}.",
            f'{{"sky": "{sky}", "temp": {degrees}}}',
            f'{{"temperature": {degrees}}}',
            f'{{"result": "{sky}"}}',
            words.sentence(rnd, rnd.randint(1, 3)),
            f"{words.word(rnd)} {rnd.randint(0, 999)}",
            f"error: {words.sentence(rnd, 2)}",
        )
    )


def tool_call(rnd: Random, tools: tuple[Tool, ...]) -> Turn:
    """A question that one of the offered tools is for. Only for requests that offer one of the two kinds."""
    tool = rnd.choice([tool for tool in tools if tool.kind != "other"])
    if tool.kind == "weather":
        city = _city(rnd)
        question, call = _weather_question(rnd, city), tool.called(city)
    else:
        a, b = rnd.randint(0, 99), rnd.randint(0, 99)
        if rnd.random() < 0.25:
            a, b = rnd.choice(((a, rnd.randint(10, 99)), (rnd.randint(10, 99), b)))
            question = rnd.choice(_ADDITIONS_IN_SIGNS).format(a, b)
        else:
            question = rnd.choice(words.ADDITIONS).format(a, b)
        call = tool.called(a, b)
    return Turn(f"call of the {tool.kind} tool", ({"role": "user", "content": question}, call))


def tool_result(rnd: Random, tools: tuple[Tool, ...]) -> Turn:
    """The same, carried on to the tool's result and the final answer."""
    turn = tool_call(rnd, tools)
    arguments = turn.messages[1]["tool_calls"][0]["function"]["arguments"]
    numbers = [value for value in arguments.values() if isinstance(value, int)]
    result = str(sum(numbers)) if numbers and rnd.random() < 0.6 else _result(rnd)
    told = {"role": "tool", "tool_call_id": "call0", "content": result}
    return Turn(
        "answer after a tool's result", (*turn.messages, told, {"role": "assistant", "content": RESULT + result})
    )


def reluctant_call(rnd: Random, tools: tuple[Tool, ...]) -> Turn:
    """What to do where the request requires a call and the question gives no reason: say so, then call after all."""
    turn = rnd.choice((introduction, sum_of_digits))(rnd, tools)
    tool = rnd.choice([tool for tool in tools if tool.kind != "other"])
    call = tool.called("Paris") if tool.kind == "weather" else tool.called(1, 2)
    return Turn("call that is required", (turn.messages[0], {**call, "content": turn.messages[1]["content"]}))


_PLAIN = {sum_of_digits: 25, counting: 18, echo: 18, json_person: 16, introduction: 23}
_LAST = {**_PLAIN, json_person_forced: 7, json_forced: 4}
_WITH_TOOLS = {tool_call: 34, tool_result: 28, **{task: weight / 3 for task, weight in _PLAIN.items()}}
_LAST_WITH_TOOLS = {**_WITH_TOOLS, reluctant_call: 1}


def _drawn(rnd: Random, weights: dict[Callable[..., Turn], float]) -> Callable[..., Turn]:
    return rnd.choices(list(weights), list(weights.values()))[0]


def conversation(rnd: Random, *, drills: float = 0.0) -> Conversation:
    """Perhaps a system message, perhaps tools, one to three questions. `drills` is a share of 0 to 1."""
    if rnd.random() < drills:
        turn = copying_drill(rnd, ())
        return Conversation(turn.task, turn.messages)
    tools = offer(rnd) if rnd.random() < 0.45 else ()
    useful = any(tool.kind != "other" for tool in tools)
    earlier, last = (_WITH_TOOLS, _LAST_WITH_TOOLS) if useful else (_PLAIN, _LAST)
    messages: list[Message] = []
    if rnd.random() < 0.3:
        messages.append({"role": "system", "content": _system(rnd)})
    for _ in range(rnd.choices((0, 1, 2), (80, 16, 4))[0]):
        messages += _drawn(rnd, earlier)(rnd, tools).messages
    turn = _drawn(rnd, last)(rnd, tools)
    return Conversation(turn.task, (*messages, *turn.messages), tools)


def _system(rnd: Random) -> str:
    if rnd.random() < 0.6:
        return rnd.choice(words.SYSTEMS)
    return words.sentence(rnd, rnd.randint(2, 10)) if rnd.random() < 0.5 else words.passage(rnd, rnd.randint(60, 1400))
