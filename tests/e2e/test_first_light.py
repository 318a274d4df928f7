"""What a newcomer sees, and what the official client sees."""

from __future__ import annotations

import json
import re
import stat
import subprocess
from pathlib import Path

import openai
import pytest

from tests.e2e.conftest import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather in a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    },
]


def test_it_prints_the_answer_and_how_to_go_on(cluster: Cluster) -> None:
    assert "tiny → 1 2 3 4 5 6 7 8 9 10 11 12" in cluster.text
    assert re.search(r"up after \d+\.\d s \(.*first token", cluster.text)
    assert "sign in   admin@localhost   password " in cluster.text
    assert cluster.key.startswith("llmgw_")


def test_the_printed_curl_line_works_when_pasted(cluster: Cluster) -> None:
    start = cluster.text.index("  curl http")
    line = cluster.text[start : cluster.text.index("}'\n", start) + 2]
    done = subprocess.run(
        ["sh", "-c", line.replace("curl ", "curl -sS ", 1)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["choices"][0]["message"]["content"].strip() == "7"


def test_secrets_are_kept_as_hashes_in_closed_files(cluster: Cluster) -> None:
    for path in [*(cluster.home / "secrets").iterdir(), cluster.home / "pki" / "ca-key.pem"]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    for path in cluster.home.rglob("*"):
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            assert cluster.key.encode() not in content, path
            assert cluster.password.encode() not in content, path


def test_no_secret_in_any_command_line_or_log(cluster: Cluster) -> None:
    secrets = [p.read_text().strip() for p in (cluster.home / "secrets").iterdir()]
    secrets += [s["key"] for s in _specs(cluster)]
    assert len(secrets) > 3
    lines = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if p.exists()]
    logs = [p.read_bytes() for p in cluster.home.rglob("*.log*") if p.is_file()]
    for secret in secrets:
        assert not [x for x in lines + logs if secret.encode() in x]


def _specs(cluster: Cluster) -> list[dict[str, str]]:
    found = []
    for path in (cluster.home / "agent" / "shards").rglob("*.json"):
        content = json.loads(path.read_text())
        found.append(content.get("spec", content))
    assert found
    return found


def test_the_sdk_whole_and_streamed(cluster: Cluster) -> None:
    client = cluster.client()
    messages = [{"role": "user", "content": "count to 7"}]
    whole = client.chat.completions.create(model="tiny", messages=messages, temperature=0)
    assert whole.choices[0].message.content == "1 2 3 4 5 6 7"
    assert whole.usage is not None
    assert whole.usage.completion_tokens > 0
    chunks = list(client.chat.completions.create(model="tiny", messages=messages, temperature=0, stream=True))
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "1 2 3 4 5 6 7"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert all(c.usage is None and c.choices for c in chunks), "nobody asked for usage"
    asked = list(
        client.chat.completions.create(
            model="tiny", messages=messages, temperature=0, stream=True, stream_options={"include_usage": True}
        )
    )
    assert asked[-1].usage is not None
    assert asked[-1].usage.completion_tokens == whole.usage.completion_tokens


@pytest.mark.parametrize("stream", [False, True])
def test_the_sdk_with_tools(cluster: Cluster, stream: bool) -> None:
    client = cluster.client()
    messages = [{"role": "user", "content": "weather in Paris?"}]
    if stream:
        chunks = list(
            client.chat.completions.create(model="tiny", messages=messages, tools=TOOLS, temperature=0, stream=True)
        )
        calls = [t for c in chunks for t in c.choices[0].delta.tool_calls or ()]
        name = "".join(t.function.name or "" for t in calls)
        arguments = "".join(t.function.arguments or "" for t in calls)
        assert chunks[-1].choices[0].finish_reason == "tool_calls"
    else:
        answer = client.chat.completions.create(model="tiny", messages=messages, tools=TOOLS, temperature=0)
        call = answer.choices[0].message.tool_calls[0]
        name, arguments = call.function.name, call.function.arguments
        assert answer.choices[0].finish_reason == "tool_calls"
    assert name == "get_weather"
    assert json.loads(arguments) == {"city": "Paris"}


def test_the_sdk_with_a_json_schema(cluster: Cluster) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    answer = cluster.client().chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "json: Ada 36"}],
        temperature=0,
        response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}},
    )
    assert json.loads(answer.choices[0].message.content) == {"name": "Ada", "age": 36}


def test_the_sdks_other_calls(cluster: Cluster) -> None:
    client = cluster.client()
    assert [m.id for m in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").id == "tiny"
    completion = client.completions.create(model="tiny", prompt="3+4", max_tokens=4, temperature=0)
    assert completion.usage.completion_tokens > 0


def test_refusals_as_the_sdk_expects_them(cluster: Cluster) -> None:
    ask = {"messages": [{"role": "user", "content": "hi"}]}
    with pytest.raises(openai.AuthenticationError):
        cluster.client(api_key="llmgw_wrong").chat.completions.create(model="tiny", **ask)
    with pytest.raises(openai.NotFoundError) as missing:
        cluster.client().chat.completions.create(model="big", **ask)
    assert missing.value.code == "model_not_found"
    assert cluster.post("/v1/chat/completions", b"{not json").status_code == 400
    assert cluster.post("/v1/chat/completions", b"x" * (33 * 1024 * 1024)).status_code == 413
    unknown = cluster.post("/v1/nothing", {})
    assert unknown.status_code == 404
    assert unknown.json()["error"]["message"]


def test_every_request_left_one_usage_row_with_the_engines_counts(cluster: Cluster) -> None:
    answer = cluster.chat("count to 9")
    usage = answer.json()["usage"]
    row = cluster.until(lambda: cluster.usage(answer.headers["x-request-id"]), 5)
    assert len(row) == 1
    assert row[0]["outcome"] == "ok"
    assert (row[0]["prompt_tokens"], row[0]["completion_tokens"]) == (
        usage["prompt_tokens"],
        usage["completion_tokens"],
    )
    shown = cluster.command("request", "show", answer.headers["x-request-id"])
    assert shown["completion_tokens"] == usage["completion_tokens"]


def test_a_revoked_key_is_refused_within_two_seconds(cluster: Cluster) -> None:
    made = cluster.command("key", "create", "short lived", "--project", "default/default/default")
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
    cluster.until(lambda: cluster.post("/v1/chat/completions", body, key=made["key"]).status_code == 200, 2)
    cluster.command("key", "revoke", made["id"])
    cluster.until(lambda: cluster.post("/v1/chat/completions", body, key=made["key"]).status_code == 401, 2)
