"""A second machine, in a network namespace of its own, joins with a code and serves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import ROOT, Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

CONTROL, NODE = "10.77.91.1", "10.77.91.2"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def namespaces() -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Two hosts with a cable between them: the command prefixes that run something on either."""
    if os.getuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    names = (f"llmgw-c-{os.getpid()}", f"llmgw-n-{os.getpid()}")
    made = []
    try:
        for name in names:
            try:
                _ip("netns", "add", name)
            except subprocess.CalledProcessError as e:
                pytest.skip(f"no network namespace can be made here: {e.stderr.strip()}")
            made.append(name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip("link", "add", "veth-c", "netns", names[0], "type", "veth", "peer", "name", "veth-n", "netns", names[1])
        for name, device, address in ((names[0], "veth-c", CONTROL), (names[1], "veth-n", NODE)):
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", device)
            _ip("-n", name, "link", "set", device, "up")
        yield ("ip", "netns", "exec", names[0]), ("ip", "netns", "exec", names[1])
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False)


def test_a_second_node_joins_with_a_code_and_serves(
    namespaces: tuple[tuple[str, ...], tuple[str, ...]], tmp_path: Path
) -> None:
    here, there = namespaces
    cluster = Cluster(tmp_path / "control", prefix=here, environment={"HOST": CONTROL})
    agent_home = tmp_path / "node"
    agent = None
    try:
        cluster.start()
        code = cluster.command("node", "join-code", "second")["code"]
        joined = subprocess.run(
            [*there, sys.executable, "-m", "agent.node.main", "join", code, "--home", str(agent_home)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert joined.returncode == 0, joined.stdout + joined.stderr
        again = subprocess.run(
            [*there, sys.executable, "-m", "agent.node.main", "join", code, "--home", str(tmp_path / "other")],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert again.returncode != 0, "a code works once"
        with open(tmp_path / "agent.log", "wb") as log:
            agent = subprocess.Popen(
                [*there, sys.executable, "-m", "agent.node.main", "run", "--home", str(agent_home)],
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        cluster.until(lambda: len([n for n in cluster.command("node", "list") if n["state"] == "ready"]) == 2, 20)

        # Nothing more goes on the first node: the next model has one place to be.
        first = next(n["node"] for n in cluster.command("node", "list") if n["node"] != "second")
        cluster.command("node", "cordon", first)
        shutil.copy(ROOT / "agent" / "starter" / "tiny.gguf", tmp_path / "other.gguf")
        definition = tmp_path / "other.yaml"
        definition.write_text(
            f"name: other\nsource: {tmp_path / 'other.gguf'}\ncontext_length: 512\nscaling: {{min: 1}}\n"
            "profiles:\n- {name: cpu, engine: llamacpp, min_memory_gb: 0.1}\n"
        )
        cluster.command("model", "add", "-f", str(definition))
        cluster.until(
            lambda: [r for r in cluster.command("replica", "list") if r["model"] == "other" and r["state"] == "ready"],
            40,
            (tmp_path / "agent.log").read_text()[-2000:],
        )
        body = {"model": "other", "temperature": 0, "messages": [{"role": "user", "content": "3+4=?"}]}
        url = f"{cluster.url}/v1/chat/completions"
        headers = ["-H", f"Authorization: Bearer {cluster.key}", "-H", "Content-Type: application/json"]
        done = subprocess.run(
            [*here, "curl", "-sS", url, *headers, "-d", json.dumps(body)], capture_output=True, text=True, check=False
        )
        assert json.loads(done.stdout)["choices"][0]["message"]["content"].strip() == "7", done.stdout + done.stderr
        rows = cluster.until(lambda: cluster.rows("SELECT node FROM gateway_usage WHERE model = 'other'"), 5)
        assert rows == [("second",)]

        # Its certificate is revoked: the link is cut at once, and stays shut.
        cluster.command("cert", "revoke", "second")
        cluster.until(
            lambda: next(n for n in cluster.command("node", "list") if n["node"] == "second")["state"] != "ready", 10
        )
    finally:
        if agent is not None:
            agent.terminate()
            agent.wait(10)
            subprocess.run(
                [*there, sys.executable, "-m", "agent.node.main", "stop-engines", "--home", str(agent_home)],
                cwd=ROOT,
                capture_output=True,
                timeout=60,
                check=False,
            )
        cluster.close()
