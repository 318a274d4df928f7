"""`llmgw tool-check`: an engine that parses no call, a model that ignores its tools, and one where all is well."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.core.management import call_command

from gateway.conform import tools
from gateway.conform.target import Target
from gateway.conform.tools import Verdict
from gateway.core import snapshot
from gateway.core.tool_calls import left_in
from tests.gateway.conform.test_real import REPLICA, Engine, llama  # noqa: F401 - a fixture
from tests.gateway.edges import KEY, EdgeProcess, catalog, endpoint

NAMES = ("get_weather", "add")


@pytest.mark.parametrize(
    ("text", "form", "parser"),
    [
        ('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>', "Hermes", "hermes"),
        ("<tool_call>\n<function=get_weather>\n<parameter=city>", "Qwen3-Coder", "qwen3_coder"),
        ("<tool_call>get_weather\n<arg_key>city</arg_key>", "GLM", "glm45"),
        ('[TOOL_CALLS][{"name": "get_weather"}]', "Mistral", "mistral"),
        ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function", "DeepSeek", "deepseek_v3"),
        ("<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0", "Kimi", "kimi_k2"),
        ("<|channel|>commentary to=functions.get_weather<|message|>{}", "gpt-oss", "openai"),
        ('<|python_tag|>{"name": "get_weather"}', "Llama 3", "llama3_json"),
        ('functools[{"name": "get_weather"}]', "Phi-4", "phi4_mini_json"),
        ('[get_weather(city="Paris")]', "Python", "pythonic"),
        ('Sure: {"name": "get_weather", "parameters": {"city": "Paris"}}', "bare JSON", "llama3_json"),
        ('```json\n[{"function": "add", "arguments": [1, 2]}]\n```', "bare JSON", "llama3_json"),
    ],
)
def test_a_call_in_the_text_is_known_by_its_form(text: str, form: str, parser: str) -> None:
    found = left_in(text, NAMES)
    assert found is not None
    assert (found.name, found.vllm) == (form, parser)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "It rains in Paris.",
        'The answer is {"city": "Paris"}.',
        '{"name": "Ada", "age": 3}',
        "[1, 2, 3] and {broken",
        "I would use get_weather for that.",
    ],
)
def test_words_are_no_call(text: str) -> None:
    assert left_in(text, NAMES) is None


def call(arguments: str = '{"city": "Paris"}', name: str = "get_weather") -> dict[str, Any]:
    entry = {"index": 0, "id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"content": None, "tool_calls": [entry]}


def words(text: str) -> dict[str, Any]:
    return {"content": text}


Speak = Callable[[dict[str, Any]], dict[str, Any]]
"""The message that a body is answered with; `ending` in it is its finish_reason, an int `status` a refusal."""


def good(body: dict[str, Any]) -> dict[str, Any]:
    last = body["messages"][-1]
    if body.get("tool_choice") == "none" or last["role"] == "tool":
        return words("It rains.")
    return call() if "weather" in last["content"] else call('{"a": 17, "b": 25}', "add")


@contextmanager
def speaker(speak: Speak, owner: str = "") -> Iterator[Target]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._say(json.dumps({"data": [{"id": "m", "owned_by": owner}]}).encode())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            message = speak(body)
            if "status" in message:
                self._say(b'{"error": {"message": "no tools here"}}', message["status"])
                return
            ending = message.pop("ending", "tool_calls" if message.get("tool_calls") else "stop")
            if not body.get("stream"):
                self._say(json.dumps({"choices": [{"message": message, "finish_reason": ending}]}).encode())
                return
            deltas = [{"delta": message, "finish_reason": None}, {"delta": {}, "finish_reason": ending}]
            events = [f"data: {json.dumps({'choices': [{'index': 0, **d}]})}\n\n" for d in deltas]
            self._say("".join([*events, "data: [DONE]\n\n"]).encode(), kind="text/event-stream")

        def _say(self, body: bytes, status: int = 200, kind: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield Target(f"127.0.0.1:{server.server_address[1]}")
    finally:
        server.shutdown()
        server.server_close()


def unparsed(body: dict[str, Any]) -> dict[str, Any]:
    message = good(body)
    if message.get("tool_calls"):
        return words('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>')
    return message


def ignoring(body: dict[str, Any]) -> dict[str, Any]:
    return good(body) if body.get("tool_choice") == "required" else words("I cannot know the weather.")


def only_streams_broken(body: dict[str, Any]) -> dict[str, Any]:
    message = good(body)
    if body.get("stream"):
        del message["tool_calls"][0]["index"]
    return message


@pytest.mark.parametrize(
    ("speak", "owner", "verdict", "sentence", "fix"),
    [
        (good, "vllm", Verdict.WORKS, "calls its tools, whole and streamed", ""),
        (unparsed, "vllm", Verdict.UNPARSED, "the engine does not parse it", "--tool-call-parser hermes"),
        (unparsed, "sglang", Verdict.UNPARSED, "Hermes", "Start SGLang with --tool-call-parser qwen25"),
        (unparsed, "llamacpp", Verdict.UNPARSED, "Hermes", "--jinja"),
        (unparsed, "", Verdict.UNPARSED, "Hermes", "Start vLLM with"),
        (ignoring, "vllm", Verdict.IGNORED, "forced to, it does, so the engine is right", "not the engine"),
        (lambda _: words("Hm."), "", Verdict.IGNORED, "answers in words", "not the engine"),
        (only_streams_broken, "", Verdict.BROKEN, "a piece of a call has no index", "newer version"),
        (lambda b: {**good(b), "ending": "stop"}, "", Verdict.BROKEN, "ends with 'stop'", "newer version"),
        (lambda _: call('{"city": "Par'), "", Verdict.BROKEN, "are no JSON", "newer version"),
        (lambda _: call("{}", "launch"), "", Verdict.BROKEN, "was not offered", "newer version"),
        (lambda _: {"status": 400}, "vllm", Verdict.REFUSED, "400 (no tools here)", "--enable-auto-tool-choice"),
    ],
)
def test_what_came_is_told_apart(speak: Speak, owner: str, verdict: Verdict, sentence: str, fix: str) -> None:
    with speaker(speak, owner) as target:
        report = tools.run(target)
    assert report.verdict is verdict, report
    assert sentence in report.sentence
    assert fix in report.fix
    assert bool(report.fix) == (verdict is not Verdict.WORKS)


def test_the_tiny_model_on_llamacpp_and_through_the_edge(edge: EdgeProcess, llama: Engine) -> None:  # noqa: F811
    """Under tool_choice "none" llama.cpp shows the tools all the same and the call comes as text; the edge does not."""
    direct = tools.run(Target(f"127.0.0.1:{llama.port}", llama.key))
    assert direct.engine == "llamacpp"
    assert [o.question for o in direct.outcomes if o.verdict is not Verdict.WORKS] == [tools.NONE], direct
    edge.serve(endpoint(llama.port, REPLICA, "tiny", parallel=2))
    edge.publish(catalog=catalog(tiny=snapshot.ModelEntry("tiny", ("small",), "serving", context_length=2048)))
    through = tools.run(Target(edge.url, KEY, "tiny"))
    assert through.verdict is Verdict.WORKS, through


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with speaker(unparsed, "vllm") as target:
        url = f"http://{target.host}:{target.port}"
        with pytest.raises(SystemExit) as e:
            call_command("tool-check", url, "--json")
        assert e.value.code == 1
        found = json.loads(capsys.readouterr().out)
        assert (found["verdict"], found["engine"], found["works"]) == ("unparsed", "vllm", False)
        with pytest.raises(SystemExit):
            call_command("tool-check", url)
        shown = capsys.readouterr().out
        assert "--tool-call-parser hermes" in shown
        assert "QUESTION" in shown
    with pytest.raises(SystemExit):
        call_command("tool-check", url)
    assert "nothing answers at" in capsys.readouterr().err
