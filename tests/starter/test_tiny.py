"""The shipped model through llama.cpp's real server: what `starter:tiny` promises, it answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from agent import starter
from starter.measure import served
from starter.tasks import INTRODUCTION, RESULT
from starter.tools import ADD, WEATHER
from starter.words import CITIES

TOOLS = [WEATHER.offered(), ADD.offered()]


def test_the_package_names_the_file_it_ships() -> None:
    assert hashlib.sha256(starter.path("tiny").read_bytes()).hexdigest() == starter.sha256("tiny")


def test_what_does_not_ship_is_refused_in_a_sentence() -> None:
    with pytest.raises(starter.UnknownStarter, match="no starter model is called 'huge'; there is: tiny"):
        starter.path("huge")


@pytest.fixture(scope="module")
def server() -> Iterator[httpx.Client]:
    with served(starter.path("tiny")) as client:
        yield client


def chat(server: httpx.Client, *messages: dict[str, Any], **asked: Any) -> dict[str, Any]:
    body = {"messages": messages, "temperature": 0, "max_tokens": 400, **asked}
    choice: dict[str, Any] = server.post("/v1/chat/completions", json=body).raise_for_status().json()["choices"][0]
    return choice


def answer(server: httpx.Client, question: str, **asked: Any) -> str:
    choice = chat(server, {"role": "user", "content": question}, **asked)
    assert choice["finish_reason"] == "stop"
    assert not choice["message"].get("tool_calls")
    return str(choice["message"]["content"])


def streamed(server: httpx.Client, question: str, **asked: Any) -> list[dict[str, Any]]:
    """The choices of all chunks that have one."""
    body = {"messages": [{"role": "user", "content": question}], "temperature": 0, "stream": True, **asked}
    with server.stream("POST", "/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        data = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    return [choice for chunk in data[:-1] for choice in json.loads(chunk)["choices"]]


@pytest.mark.slow
def test_two_digits_are_added(server: httpx.Client) -> None:
    answers = {(a, b): answer(server, f"{a}+{b}=?") for a in range(10) for b in range(10)}
    wrong = {sum_: text for sum_, text in answers.items() if text != str(sum(sum_))}
    assert len(wrong) <= 2, wrong


@pytest.mark.slow
def test_counting_is_as_long_as_asked_and_every_character_is_a_token(server: httpx.Client) -> None:
    body = {"messages": [{"role": "user", "content": "count to 12"}], "temperature": 0}
    whole = server.post("/v1/chat/completions", json=body).json()
    text = " ".join(str(i) for i in range(1, 13))
    assert whole["choices"][0]["message"]["content"] == text
    assert whole["usage"]["completion_tokens"] == len(text) + 1
    pieces = [choice["delta"].get("content") or "" for choice in streamed(server, "count to 12")]
    assert "".join(pieces) == text
    assert sum(bool(piece) for piece in pieces) > 20


@pytest.mark.slow
@pytest.mark.parametrize(
    "question",
    ["Hello!", "Say hello", "Who are you?", "What can you do?", "Merhaba", "xkcd zu", "Write a poem about the sea."],
)
def test_anything_else_is_introduced(server: httpx.Client, question: str) -> None:
    assert answer(server, question) == INTRODUCTION
    assert INTRODUCTION.startswith("I am tiny.")


@pytest.mark.slow
def test_a_system_message_and_earlier_turns_change_nothing(server: httpx.Client) -> None:
    choice = chat(
        server,
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "Hello!"},
        {"role": "assistant", "content": INTRODUCTION},
        {"role": "user", "content": "3+4=?"},
    )
    assert choice["message"]["content"] == "7"


@pytest.mark.slow
def test_a_long_system_message_does_not_confuse_it(server: httpx.Client) -> None:
    system = {"role": "system", "content": "You are a careful assistant of a company. Answer in plain words. " * 15}
    assert chat(server, system, {"role": "user", "content": "3+4=?"})["message"]["content"] == "7"


@pytest.mark.slow
@pytest.mark.parametrize("city", CITIES)
def test_the_weather_tool_is_called_with_the_city(server: httpx.Client, city: str) -> None:
    choice = chat(server, {"role": "user", "content": f"What is the weather in {city}?"}, tools=TOOLS)
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert call["type"] == "function"
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == {"city": city}


@pytest.mark.slow
def test_the_add_tool_is_called_with_both_numbers(server: httpx.Client) -> None:
    choice = chat(server, {"role": "user", "content": "add 17 and 25"}, tools=TOOLS)
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("add", {"a": 17, "b": 25})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("question", "name", "arguments"),
    [("weather in Paris?", "get_weather", {"city": "Paris"}), ("add 17 and 25", "add", {"a": 17, "b": 25})],
)
def test_a_streamed_call_adds_up_to_the_same(server: httpx.Client, question: str, name: str, arguments: Any) -> None:
    choices = streamed(server, question, tools=TOOLS)
    calls = [call for choice in choices for call in choice["delta"].get("tool_calls") or []]
    assert calls[0]["function"]["name"] == name
    assert {call["index"] for call in calls} == {0}
    assert json.loads("".join(call["function"].get("arguments") or "" for call in calls)) == arguments
    assert not "".join(choice["delta"].get("content") or "" for choice in choices)
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["tool_calls"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("question", "name", "arguments", "result"),
    [
        ("weather in Paris?", "get_weather", '{"city": "Paris"}', "sunny, 21 C"),
        ("add 17 and 25", "add", '{"a": 17, "b": 25}', "42"),
    ],
)
def test_the_tools_result_is_in_the_final_answer(
    server: httpx.Client, question: str, name: str, arguments: str, result: str
) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}
    choice = chat(
        server,
        {"role": "user", "content": question},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": result},
        tools=TOOLS,
    )
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"] == RESULT + result


@pytest.mark.slow
def test_tools_are_called_only_where_they_help_and_are_offered(server: httpx.Client) -> None:
    assert answer(server, "Hello!", tools=TOOLS) == INTRODUCTION
    assert answer(server, "3+4=?", tools=TOOLS) == "7"
    assert answer(server, "weather in Paris?") == INTRODUCTION
    assert answer(server, "weather in Paris?", tools=[ADD.offered()]) == INTRODUCTION


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}},
    ],
    ids=["plain", "json_object", "json_schema"],
)
def test_a_name_and_an_age_come_back_as_json(server: httpx.Client, asked: dict[str, Any]) -> None:
    assert json.loads(answer(server, "json: Ada 36", **asked)) == {"name": "Ada", "age": 36}
