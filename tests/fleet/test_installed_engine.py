"""A node that is told of an engine installs it and serves with it: real agent, real link, real llama.cpp behind a
release of a stand-in of GitHub."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.launchers import llamacpp_server
from fleet import models, selectors
from fleet.actions import certificates, nodes
from fleet.selectors.world import engine_key
from llmgw.cluster.actions import settings as cluster_settings
from tests.agent.releases import Releases, serving, tar
from tests.fleet.links import Link
from tests.fleet.test_real_agent import Machine, Planner, ready, tiny, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
REPOSITORY = "ggml-org/llama.cpp"
ROOT = Path(llamacpp_server.__file__).parents[2]


def release(number: int) -> bytes:
    """A `llama-server` that is llama.cpp's own server, from its wheel, by our launcher."""
    script = (
        f'#!/bin/sh\n[ "$1" = --version ] && {{ echo "version: {number} (wheel)"; exit 0; }}\n'
        f'RELEASE=b{number} PYTHONPATH={ROOT} exec {sys.executable} -P -m agent.launchers.llamacpp_server "$@"\n'
    )
    return tar({f"llama-b{number}/llama-server": script.encode()}, executable=("llama-server",))


@pytest.fixture
def github() -> Iterator[Releases]:
    with serving() as releases:
        for number in (10991, 10992):
            releases.add(REPOSITORY, f"b{number}", f"llama-b{number}-bin-ubuntu-x64.tar.gz", release(number))
        yield releases


@pytest.fixture
def machine(link: Link, tmp_path: Path, github: Releases) -> Iterator[Machine]:
    url = f"wss://127.0.0.1:{link.port}/agent/link"
    certificates.enrol_local(node_id="n1", home=tmp_path, server_url=url, actor="test")
    path = tmp_path / "agent.yaml"
    engines = {"install": True, "packages": False}
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "engines": engines, "github": github.api}))
    cluster_settings.put(path="fleet.drain_s", value=0, actor="test")
    first = random.randrange(20000, 30000, 20)  # other fleets may run on this machine
    cluster_settings.put(path="fleet.last_port", value=first + 19, actor="test")
    cluster_settings.put(path="fleet.first_port", value=first, actor="test")
    running, planner = Machine(tmp_path), Planner()
    try:
        running.start()
        planner.start()
        yield running
    finally:
        planner.end()
        running.close()


def engine(**wanted: object) -> dict[str, object] | None:
    rows = [r for r in selectors.engines("llamacpp") if r["node"] == "n1"]
    return next((r for r in rows if all(r[k] == v for k, v in wanted.items())), None)


def release_of(pid: int) -> str:
    """Which of the releases a process was started from."""
    variables = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return next((v.removeprefix("RELEASE=") for v in variables if v.startswith("RELEASE=")), "")


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the stand-in has x64 releases alone")
def test_a_node_serves_with_the_engine_that_it_installed(machine: Machine, github: Releases) -> None:
    until(lambda: engine(state="ready", build="xllamacpp"), "the wheel's engine")
    assert not github.asked  # the wheel is enough, until somebody chooses a build
    nodes.engine_build(node_id="n1", engine="llamacpp", build="cpu", actor="test")
    until(lambda: engine(state="ready", build="cpu", version="b10991"), "the installed engine")
    tiny()
    first = until(ready, "a ready replica")
    assert ask(first)["choices"][0]["message"]["content"]
    assert release_of(first.pid) == "b10991"

    # Another version comes while it serves; an agent that is killed in the middle does not matter.
    cluster_settings.put(path="engines.llamacpp", value="b10992", actor="test")
    until(lambda: list(machine.home.glob("engines/llamacpp/.b10992*")) or engine(version="b10992"), "a beginning")
    machine.kill()
    machine.start()
    until(lambda: engine(state="ready", version="b10992"), "the new version")
    assert ready().pid == first.pid
    assert (machine.home / "engines" / "llamacpp" / "b10992-cpu").is_dir()
    assert ask(ready())["usage"]["completion_tokens"] > 0

    os.kill(first.pid, signal.SIGKILL)
    second = until(lambda: (s := ready()) and s.pid != first.pid and s, "the engine's return")
    assert release_of(second.pid) == "b10992"
    assert ask(second)["choices"]


def ask(shard: models.Shard) -> dict[str, Any]:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "3+4=?"}], "max_tokens": 4}
    request = urllib.request.Request(
        f"http://127.0.0.1:{shard.port}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {engine_key(shard.replica.public_id)}"},
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return dict(json.load(answer))
