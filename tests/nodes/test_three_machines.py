"""Three machines with systemd join, serve, are rebooted and upgraded: as an operator does it, by the words of
docs/operating.md. Run by hand: it takes some minutes, and a root file system (`tests/nodes/machines.py`)."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import Cluster
from tests.nodes import machines, wheels
from tests.nodes.machines import Machine

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

HOME = "/var/lib/llmgw-agent"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, list[Machine]]]:
    """A control plane on this machine, and three others in its cluster that are all that models may run on."""
    if (why := machines.missing()) is not None:
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("machines")
    shared = folder / "shared"
    wheels.build(shared / "wheels")
    wheels.build_newer(shared / "newer")
    shutil.copy(wheels.ROOT / "deploy/systemd/llmgw-agent.service", shared)
    shutil.copy(wheels.ROOT / "agent/starter/tiny.gguf", shared / "other.gguf")
    machines.bridge_up()
    cluster = Cluster(folder / "control", environment={"HOST": machines.GATEWAY})
    booted = [Machine(f"llmgw-t{n}", f"10.77.93.1{n}", folder / f"t{n}", shared) for n in (1, 2, 3)]
    try:
        cluster.start()
        for machine in booted:
            machine.start()
            _join(cluster, machine)
        cluster.until(lambda: len(_ready(cluster)) == 4, 60)
        for node in cluster.command("node", "list"):
            if not node["node"].startswith("llmgw-t"):
                cluster.command("node", "cordon", node["node"])
        definition = folder / "other.yaml"
        definition.write_text(
            "name: other\nsource: /srv/shared/other.gguf\ncontext_length: 512\nscaling: {min: 3}\n"
            "profiles:\n- {name: cpu, engine: llamacpp, min_memory_gb: 0.2, parallel: 8}\n"
        )
        cluster.command("model", "add", "-f", str(definition), "--no-source-check")
        cluster.until(lambda: len(_serving(cluster)) == 3, 90)
        yield cluster, booted
    finally:
        cluster.close()
        for machine in booted:
            machine.close()
        machines.bridge_down()


def _join(cluster: Cluster, machine: Machine) -> None:
    code = cluster.command("node", "join-code", machine.name)["code"]
    machine.run("python3 -m venv /opt/llmgw")
    machine.run("/opt/llmgw/bin/pip install -q --no-index --find-links /srv/shared/wheels llmgw xllamacpp")
    machine.run("useradd --system --no-create-home --shell /usr/sbin/nologin llmgw-engine")
    machine.run(f"/opt/llmgw/bin/llmgw-agent join {code} --address {machine.address}")
    machine.run(f"echo 'engine_user: llmgw-engine' >> {HOME}/agent.yaml")
    machine.run("cp /srv/shared/llmgw-agent.service /etc/systemd/system/ && systemctl enable -q --now llmgw-agent")


def _ready(cluster: Cluster) -> list[str]:
    return [n["node"] for n in cluster.command("node", "list") if n["state"] == "ready"]


def _serving(cluster: Cluster) -> dict[str, int]:
    """The pid of each engine that is ready, by node."""
    found = cluster.rows(
        "SELECT n.node_id, s.pid FROM fleet_shard s JOIN fleet_replica r ON r.id = s.replica_id"
        " JOIN fleet_node n ON n.id = s.node_id"
        " WHERE r.model = 'other' AND r.state = 'ready' AND s.observed = 'ready'"
    )
    return {str(node): int(pid) for node, pid in found}


def test_each_machine_runs_one_engine_as_its_own_user(house: tuple[Cluster, list[Machine]]) -> None:
    cluster, booted = house
    pids = _serving(cluster)
    assert set(pids) == {m.name for m in booted}
    for machine in booted:
        assert machine.run(f"ps -o user= -p {pids[machine.name]}").strip().startswith("llmgw-e")
        assert machine.run("systemctl is-active llmgw-agent").strip() == "active"
        told = json.loads(machine.run("/opt/llmgw/bin/llmgw-agent doctor --json", check=False))
        assert not [f for f in told["findings"] if f["level"] == "problem"], told["findings"]


def test_a_library_that_is_missing_is_named_before_anything_is_placed(house: tuple[Cluster, list[Machine]]) -> None:
    cluster, booted = house
    last = booted[-1]
    library = last.run("ls /usr/lib/*/libgomp.so.1").strip()
    last.run(f"mv {library} /var/tmp/ && ldconfig && systemctl restart llmgw-agent")

    def problem() -> str | None:
        engines = cluster.command("node", "show", last.name)["engine_details"]
        return next((e["problem"] for e in engines if e["name"] == "llamacpp"), None)

    cluster.until(problem, 30)
    assert "libgomp.so.1" in str(problem())
    assert "apt-get install -y libgomp1" in str(problem())
    told = json.loads(last.run("/opt/llmgw/bin/llmgw-agent doctor --json", check=False))
    assert [f["check"] for f in told["findings"] if f["level"] == "problem"] == ["engines"]
    last.run(f"mv /var/tmp/libgomp.so.1 {library} && ldconfig")
    cluster.until(lambda: problem() is None, 60)


def test_an_upgraded_agent_and_a_killed_one_find_their_engines_serving(house: tuple[Cluster, list[Machine]]) -> None:
    cluster, booted = house
    before = _serving(cluster)
    first, last = booted[0], booted[-1]
    first.run("/opt/llmgw/bin/pip install -q --no-index --no-deps --find-links /srv/shared/newer --upgrade llmgw")
    first.run("systemctl restart llmgw-agent")
    last.run("systemctl kill -s KILL --kill-whom=main llmgw-agent")
    cluster.until(lambda: cluster.command("node", "show", first.name)["agent_version"] == wheels.NEWER, 30)
    cluster.until(lambda: {m.name for m in booted} <= set(_ready(cluster)), 30)
    time.sleep(3)  # what would be started afresh is, by then
    assert _serving(cluster) == before
    for machine in (first, last):
        assert machine.run(f"ps -o stat= -p {before[machine.name]}").strip()


def test_a_reboot_in_the_midst_of_streams_costs_those_of_that_machine(house: tuple[Cluster, list[Machine]]) -> None:
    cluster, booted = house
    before = _serving(cluster)
    gone = booted[1]
    streams = [_Stream(cluster) for _ in range(12)]
    for stream in streams:
        stream.start()
    cluster.until(lambda: all(s.text or s.over for s in streams), 30)
    rebooting = threading.Thread(target=gone.reboot)
    rebooting.start()
    answered = 0
    while rebooting.is_alive():  # others serve meanwhile
        assert _ask(cluster) == "7"
        answered += 1
    rebooting.join()
    for stream in streams:
        stream.join(60)
        assert stream.over in ("[DONE]", "error"), stream.text[-500:]
    assert answered > 3
    cluster.until(lambda: set(_serving(cluster)) == set(before), 120)
    after = _serving(cluster)
    kept = {m.name for m in booted} - {gone.name}
    assert {n: after[n] for n in kept} == {n: before[n] for n in kept}


def _ask(cluster: Cluster) -> str:
    body = {"model": "other", "temperature": 0, "messages": [{"role": "user", "content": "3+4=?"}]}
    done = _curl(cluster, body)
    return str(json.loads(done)["choices"][0]["message"]["content"]).strip()


def _curl(cluster: Cluster, body: dict[str, object]) -> str:
    headers = ["-H", f"Authorization: Bearer {cluster.key}", "-H", "Content-Type: application/json"]
    url = f"{cluster.url}/v1/chat/completions"
    return subprocess.run(
        ["curl", "-sSN", url, *headers, "-d", json.dumps(body)], capture_output=True, text=True, check=True, timeout=120
    ).stdout


class _Stream(threading.Thread):
    """One stream that lasts a while. `over`: how it ended."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(daemon=True)
        self.cluster, self.text, self.over = cluster, "", ""

    def run(self) -> None:
        words = "count to 99"
        body = {"model": "other", "temperature": 0, "stream": True, "messages": [{"role": "user", "content": words}]}
        self.text = _curl(self.cluster, body)
        self.over = "[DONE]" if "data: [DONE]" in self.text else "error" if '"error"' in self.text else "cut"
