"""A control plane on this machine, and three others in its cluster that are all that models may run on."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import httpx
import yaml

from tests.e2e.conftest import Cluster
from tests.nodes import machines, wheels
from tests.nodes.machines import Machine

HOME = "/var/lib/llmgw-agent"
WEIGHTS = "/srv/shared/other.gguf"
RESIDENT = "other"
"""The model that runs on each machine throughout, on one of its two cores."""


class House:
    """`machines` are booted and joined; `cluster` is what they joined."""

    def __init__(self, folder: Path) -> None:
        self.folder, shared = folder, folder / "shared"
        self.cluster = Cluster(folder / "control", environment={"HOST": machines.GATEWAY})
        self.machines = [Machine(f"llmgw-t{n}", f"10.77.93.1{n}", folder / f"t{n}", shared) for n in (1, 2, 3)]
        self.shared = shared

    def open(self) -> None:
        wheels.build(self.shared / "wheels")
        wheels.build_newer(self.shared / "newer")
        shutil.copy(wheels.ROOT / "deploy/systemd/llmgw-agent.service", self.shared)
        shutil.copy(wheels.ROOT / "agent/starter/tiny.gguf", self.shared / "other.gguf")
        machines.bridge_up()
        self.cluster.start()
        for limit in ("limits.default_rpm", "limits.default_tpm"):  # load comes from the one key that there is
            self.cluster.command("config", "set", limit, "0")
        for machine in self.machines:
            machine.start()
            self._join(machine)
        self.cluster.until(lambda: len(self.ready_nodes()) == 4, 60)
        for node in self.cluster.command("node", "list"):
            if not node["node"].startswith("llmgw-t"):
                self.cluster.command("node", "cordon", node["node"])
        self._add(RESIDENT, {"min": 3}, {"parallel": 8})
        self.cluster.until(lambda: len(self.engines()) == 3, 90)

    def close(self) -> None:
        self.cluster.close()
        for machine in self.machines:
            machine.close()
        machines.bridge_down()

    def _join(self, machine: Machine) -> None:
        code = self.cluster.command("node", "join-code", machine.name)["code"]
        machine.run("python3 -m venv /opt/llmgw")
        machine.run("/opt/llmgw/bin/pip install -q --no-index --find-links /srv/shared/wheels llmgw xllamacpp")
        machine.run("useradd --system --no-create-home --shell /usr/sbin/nologin llmgw-engine")
        machine.run(f"/opt/llmgw/bin/llmgw-agent join {code} --address {machine.address}")
        machine.run(f"echo 'engine_user: llmgw-engine' >> {HOME}/agent.yaml")
        machine.run("cp /srv/shared/llmgw-agent.service /etc/systemd/system/ && systemctl enable -q --now llmgw-agent")

    def _add(self, name: str, scaling: dict[str, Any], profile: dict[str, Any]) -> None:
        document = {
            "name": name,
            "source": WEIGHTS,
            "context_length": 2048,
            "scaling": scaling,
            "profiles": [{"name": "cpu", "engine": "llamacpp", "cpu_cores": 1, "parallel": 4, **profile}],
        }
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(document))
        self.cluster.command("model", "add", "-f", str(path), "--no-source-check")

    @contextmanager
    def model(self, name: str, *, scaling: dict[str, Any], **profile: Any) -> Iterator[str]:
        """A model that is there for a while; its engines have ended when it is gone."""
        self._add(name, scaling, profile)
        try:
            yield name
        finally:
            self.cluster.command("model", "remove", name, "--yes")
            self.cluster.until(lambda: not self.states(name), 40)

    @contextmanager
    def settings(self, **values: object) -> Iterator[None]:
        """Settings of the cluster for a while; `__` stands for the point in a name."""
        names = {name.replace("__", "."): value for name, value in values.items()}
        for name, value in names.items():
            self.cluster.command("config", "set", name, str(value))
        try:
            yield
        finally:
            for name in names:
                self.cluster.command("config", "set", name, "default")

    def spread(self) -> dict[str, int]:
        """The resident model with one replica on each machine again: what the loss of one put elsewhere stays there."""
        if len(self.engines()) < 3:
            self.cluster.command("model", "stop", RESIDENT)
            self.cluster.until(lambda: not self.states(RESIDENT), 40)
            self.cluster.command("model", "start", RESIDENT)
            self.cluster.until(lambda: len(self.engines()) == 3, 60)
        return self.engines()

    def ready_nodes(self) -> list[str]:
        return [n["node"] for n in self.cluster.command("node", "list") if n["state"] == "ready"]

    def engines(self, model: str = RESIDENT) -> dict[str, int]:
        """The pid of each engine that is ready, by node."""
        return {node: pid for _, node, pid in self.served(model)}

    def served(self, model: str) -> list[tuple[str, str, int]]:
        """(replica, node, pid) of each that is ready."""
        found = self.cluster.rows(
            "SELECT r.public_id, n.node_id, s.pid FROM fleet_shard s JOIN fleet_replica r ON r.id = s.replica_id"
            " JOIN fleet_node n ON n.id = s.node_id"
            " WHERE r.model = ? AND r.state = 'ready' AND s.observed = 'ready' ORDER BY r.id",
            model,
        )
        return [(str(replica), str(node), int(pid)) for replica, node, pid in found]

    def states(self, model: str) -> dict[str, str]:
        return dict(self.cluster.rows("SELECT public_id, state FROM fleet_replica WHERE model = ?", model))

    def running(self) -> dict[str, list[int]]:
        """What really runs: pids of engines by machine, as each machine's own process table has them."""
        return {m.name: [int(p) for p in m.run("pgrep -u llmgw-engine", check=False).split()] for m in self.machines}


def ask(cluster: Cluster, model: str = RESIDENT) -> str:
    body = {"model": model, "temperature": 0, "messages": [{"role": "user", "content": "3+4=?"}]}
    return str(json.loads(curl(cluster, body))["choices"][0]["message"]["content"]).strip()


def curl(cluster: Cluster, body: dict[str, object]) -> str:
    headers = ["-H", f"Authorization: Bearer {cluster.key}", "-H", "Content-Type: application/json"]
    url = f"{cluster.url}/v1/chat/completions"
    return subprocess.run(
        ["curl", "-sSN", url, *headers, "-d", json.dumps(body)], capture_output=True, text=True, check=True, timeout=100
    ).stdout


class Stream(threading.Thread):
    """One stream that lasts a while: `text` as far as it has come. `over`: how it ended; nothing where it hangs."""

    LONG: ClassVar[dict[str, object]] = {
        "max_tokens": 1900,
        "logit_bias": {"<|im_end|>": False},
        "ignore_eos": True,
        "temperature": 1,
    }

    def __init__(self, cluster: Cluster, model: str = RESIDENT) -> None:
        super().__init__(daemon=True)
        self.cluster, self.model, self.text, self.over = cluster, model, "", ""

    def run(self) -> None:
        said = [{"role": "user", "content": "count to 99"}]
        body: dict[str, object] = {"model": self.model, "stream": True, "messages": said, **self.LONG}
        url, headers = f"{self.cluster.url}/v1/chat/completions", {"Authorization": f"Bearer {self.cluster.key}"}
        try:
            with httpx.stream("POST", url, json=body, headers=headers, timeout=100) as answer:
                for piece in answer.iter_text():
                    self.text += piece
        except httpx.HTTPError as e:
            self.text += repr(e)
        self.over = "[DONE]" if "data: [DONE]" in self.text else "error" if '"error"' in self.text else "cut"
