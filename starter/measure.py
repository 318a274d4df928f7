"""Measure a GGUF of the tiny model by task, through a real llama.cpp server.

    python -m starter.measure [MODEL.gguf] [--each 100] [--seed 20261129] [--misses]

Asks conversations that training did not see (another seed), at temperature 0, and prints a table. Needs what a node
needs (`pip install llmgw[onebox]`), not torch.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, TextIO

import httpx

from agent import starter as shipped
from starter.tasks import FORCED, FREE, Conversation, conversation

KEY = "measure"
START_S = ANSWER_S = 30


@contextmanager
def served(model: Path) -> Iterator[httpx.Client]:
    """A server of this file on a free port, for as long as the context lasts."""
    command = [sys.executable, "-m", "agent.launchers.llamacpp_server", "--model", str(model), "--host", "127.0.0.1"]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [*command, "--port", "0", "--threads", "1", "--threads-batch", "1"],
            env=os.environ | {"LLAMA_API_KEY": KEY},
            stdout=log,
            stderr=log,
        )
        try:
            # The server closes a connection after some requests, and that may cross the next one: one each instead.
            limits = httpx.Limits(max_keepalive_connections=0)
            headers = {"Authorization": f"Bearer {KEY}"}
            address = _address(process, log)
            with httpx.Client(base_url=address, headers=headers, timeout=ANSWER_S, limits=limits) as client:
                yield client
        finally:
            process.terminate()
            process.wait(START_S)


def _address(process: subprocess.Popen[bytes], log: TextIO) -> str:
    """Where the server says that it listens. Raises RuntimeError with its last words."""
    deadline = time.monotonic() + START_S
    while True:
        # Read from the start each time: the descriptor, and so its position, is shared with the server.
        lines = os.pread(log.fileno(), 1 << 20, 0).decode(errors="replace").splitlines(keepends=True)
        for line in lines:
            if line.startswith("listening on") and line.endswith("\n"):
                return line.split()[-1]
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the server did not come up: {''.join(lines[-5:])}")
        time.sleep(0.02)


def ask(client: httpx.Client, asked: Conversation) -> dict[str, Any]:
    """The assistant's message as the server answers it."""
    messages = [_sent(message) for message in asked.messages[:-1]]
    body: dict[str, Any] = {"messages": messages, "temperature": 0, "max_tokens": 400}
    if asked.tools:
        body["tools"] = [tool.offered() for tool in asked.tools]
    if asked.task == "call that is required":
        body["tool_choice"] = "required"
    if FORCED in asked.messages[-1]["content"]:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": _schema(asked)}}
    message: dict[str, Any] = (
        client.post("/v1/chat/completions", json=body).raise_for_status().json()["choices"][0]["message"]
    )
    return message


def right(asked: Conversation, answer: dict[str, Any]) -> bool:
    """Whether it is the one right answer; JSON and arguments are compared as values."""
    wanted = asked.messages[-1]
    calls = answer.get("tool_calls") or []
    if asked.task == "call that is required":
        return [call["function"]["name"] in {tool.name for tool in asked.tools} for call in calls] == [True]
    if wanted.get("tool_calls"):
        expected = [(call["function"]["name"], call["function"]["arguments"]) for call in wanted["tool_calls"]]
        return [(call["function"]["name"], _value(call["function"]["arguments"])) for call in calls] == expected
    content = answer.get("content") or ""
    if asked.task == "JSON answer":
        return _value(content) == _value(_plain(wanted["content"]))
    return not calls and content == wanted["content"]


def _value(text: str) -> Any:
    """What this JSON says; text that is none is its own value."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _plain(text: str) -> str:
    return text.replace(FORCED, "").replace(FREE, "")


def _schema(asked: Conversation) -> dict[str, Any]:
    """The JSON schema of an answer that a grammar is to force."""
    kinds = {str: "string", int: "integer"}
    wanted = json.loads(_plain(asked.messages[-1]["content"]))
    properties = {name: {"type": kinds[type(value)]} for name, value in wanted.items()}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _sent(message: dict[str, Any]) -> dict[str, Any]:
    """A message as a client sends it: arguments are a string on the wire."""
    calls = []
    for call in message.get("tool_calls", ()):
        function = call["function"]
        calls.append({**call, "function": {**function, "arguments": json.dumps(function["arguments"])}})
    return {**message, "tool_calls": calls} if calls else message


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the tiny model by task through llama.cpp's server.")
    parser.add_argument("model", type=Path, nargs="?", default=shipped.path("tiny"))
    parser.add_argument("--each", type=int, default=100, help="questions of each task")
    parser.add_argument("--seed", type=int, default=20261129)
    parser.add_argument("--misses", action="store_true", help="print what was answered wrongly")
    asked = parser.parse_args()
    rnd, met, hit = Random(asked.seed), Counter[str](), Counter[str]()
    started = time.monotonic()
    with served(asked.model) as client:
        for _ in range(200 * asked.each):
            one = conversation(rnd)
            if met[one.task] == asked.each:
                continue
            answer = ask(client, one)
            met[one.task] += 1
            if right(one, answer):
                hit[one.task] += 1
            elif asked.misses:
                print(json.dumps([one.task, one.messages[-2:], answer], ensure_ascii=False), file=sys.stderr)
    print("| task | right | of |\n|---|---|---|")
    for task in sorted(met):
        print(f"| {task} | {hit[task] / met[task]:.0%} | {met[task]} |")
    print(f"\n{sum(met.values())} questions in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
