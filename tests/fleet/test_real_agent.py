"""The real agent and the real llama.cpp server, through the real link: what must survive."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, connections

from catalog.models import Model
from fleet import logs, models, passes, selectors
from fleet.actions import certificates, joining, nodes, replicas
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.models import Store
from tests.fleet.links import Link

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


class Planner(threading.Thread):
    """The worker's part: a pass of the reconciler, again and again."""

    def __init__(self) -> None:
        super().__init__()
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.2):
            passes.run()
        connections.close_all()

    def end(self) -> None:
        self._over.set()
        self.join()


class Machine:
    """An agent's home and its process."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        log = (self.home / "test.log").open("ab")
        with log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "agent.node.main", "run", "--home", str(self.home)],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)
        self.process = None

    def close(self) -> None:
        if self.process is not None:
            self.kill()
        stop = [sys.executable, "-m", "agent.node.main", "stop-engines", "--home", str(self.home)]
        subprocess.run(stop, check=False, timeout=30, capture_output=True)


@pytest.fixture
def machine(link: Link, tmp_path: Path) -> Iterator[Machine]:
    certificates.enrol_local(
        node_id="n1", home=tmp_path, server_url=f"wss://127.0.0.1:{link.port}/agent/link", actor="test"
    )
    cluster_settings.put(path="fleet.drain_s", value=0, actor="test")
    first = random.randrange(20000, 30000, 20)  # other fleets may run on this machine
    cluster_settings.put(path="fleet.last_port", value=first + 19, actor="test")
    cluster_settings.put(path="fleet.first_port", value=first, actor="test")
    running = Machine(tmp_path)
    planner = Planner()
    try:
        running.start()
        planner.start()
        yield running
    finally:
        planner.end()
        running.close()


def tiny(minimum: int = 1, **changes: Any) -> None:
    definition = {
        "name": "tiny",
        "source": "starter:tiny",
        "profiles": [{"run": {"name": "cpu", "engine": "llamacpp", "context_length": 512}}],
        "scaling": {"min": minimum, "max": minimum},
        **changes,
    }
    Model.objects.update_or_create(name="tiny", defaults={"definition": definition})


def until(check: Callable[[], Any], what: str, timeout_s: float = 40.0) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := check()):
        assert time.monotonic() < deadline, f"{what} did not come to pass; {selectors.nodes()} {selectors.replicas()}"
        time.sleep(0.1)
    return found


def ready() -> models.Shard | None:
    return models.Shard.objects.filter(replica__state="ready").select_related("replica").first()


def test_a_replica_lives_through_what_happens_to_the_others(machine: Machine, link: Link) -> None:
    tiny()
    first = until(ready, "a ready replica")
    assert first.pid
    replica = first.replica.public_id
    assert selectors.endpoints()[0].port == first.port
    assert logs.of_replica(replica)
    assert logs.of_agent("n1")

    machine.kill()
    until(lambda: not models.Node.objects.get().connected, "the agent's absence")
    os.kill(first.pid, 0)  # the engine goes on
    assert selectors.endpoints()
    machine.start()
    until(lambda: models.Node.objects.get().connected and ready(), "the agent's return")
    assert ready().pid == first.pid

    link.kill()
    time.sleep(1)
    assert selectors.endpoints()
    link.start()
    until(lambda: models.Node.objects.get().connected, "the agent's reconnection")
    time.sleep(2)
    assert ready().pid == first.pid
    assert models.Replica.objects.get().public_id == replica

    os.kill(first.pid, signal.SIGKILL)
    second = until(lambda: (s := ready()) and s.pid != first.pid and s, "the engine's return")
    assert second.replica.public_id == replica
    states = [e["state"] for e in selectors.events(replica)]
    assert "backoff" in states

    replicas.restart(replica=replica, actor="test")
    third = until(lambda: (s := ready()) and s.pid not in (first.pid, second.pid) and s, "the restart")
    assert third.replica.incarnation > second.replica.incarnation

    Model.objects.update(stopped=True)
    until(lambda: not models.Replica.objects.exists(), "the model's end")
    with pytest.raises(ProcessLookupError):
        os.kill(third.pid, 0)


def test_an_empty_store_adopts_what_runs(machine: Machine, link: Link) -> None:
    tiny()
    first = until(ready, "a ready replica")
    replica = first.replica.public_id
    link.kill()
    models.Replica.objects.all().delete()
    models.Node.objects.all().delete()
    link.start()
    back = until(ready, "the adoption")
    assert back.pid == first.pid
    assert back.replica.public_id == replica
    assert back.replica.adopted


def another_store(link: Link) -> None:
    """An empty one in place of the first, on the same agents."""
    link.kill()
    deadline = time.monotonic() + 10
    while True:  # a pass that is under way may still write a row that names one that goes
        try:
            for table in (models.Replica, models.Node, models.Stray, Store):
                table.objects.all().delete()
            break
        except IntegrityError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    link.start()


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_second_store_takes_over_what_it_adopts_and_may_stop_it(machine: Machine, link: Link) -> None:
    tiny()
    first = until(ready, "a ready replica")
    another_store(link)
    second = until(ready, "the adoption")
    assert second.pid == first.pid
    record = next((machine.home / "shards").glob("*.json"))
    until(lambda: str(Store.objects.get().store_id) in record.read_text(), "the new owner's name on the record")

    machine.kill()  # the next agent knows whose it is
    machine.start()
    until(lambda: models.Node.objects.get().connected and ready(), "the agent's return")
    replicas.restart(replica=second.replica.public_id, actor="test")
    third = until(lambda: (s := ready()) and s.pid != first.pid and s, "the restart")
    assert gone(first.pid)
    Model.objects.update(stopped=True)
    until(lambda: not models.Replica.objects.exists() and gone(third.pid), "the model's end")


def test_another_stores_engine_goes_on_until_an_administrator_settles_it(machine: Machine, link: Link) -> None:
    tiny()
    first = until(ready, "a ready replica")
    Model.objects.all().delete()
    another_store(link)
    until(lambda: models.Stray.objects.filter(foreign=True).exists(), "the stray")
    time.sleep(2)
    assert not gone(first.pid)
    assert selectors.node("n1")["state"] == "unsettled"
    assert nodes.settle(node_id="n1", actor="test") == 1
    until(lambda: gone(first.pid) and not models.Stray.objects.exists(), "its end")


def test_a_file_that_is_no_model_parks_its_replica_with_the_reason(machine: Machine, tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"this is no model")
    cluster_settings.put(path="fleet.backoff_first_s", value=0.1, actor="test")
    cluster_settings.put(path="fleet.park_after", value=2, actor="test")
    tiny(source=f"path:{bad}")
    parked = until(lambda: models.Replica.objects.filter(state="parked").first(), "the parking")
    assert "2 starts in a row failed" in parked.reason
    assert selectors.model_states()["tiny"].state == "parked"
    tiny()
    until(ready, "the mended model")


def test_a_machine_joins_by_a_code_and_is_removed(link: Link, tmp_path: Path, live_portal: str, settings: Any) -> None:
    settings.MACHINE = dataclasses.replace(settings.MACHINE, link_port=link.port)
    made = joining.make(node_id="n7", portal=live_portal, actor="test")
    home = tmp_path / "n7"
    join = [sys.executable, "-m", "agent.node.main", "join", made.code, "--home", str(home)]
    done = subprocess.run(join, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    running = Machine(home)
    running.start()
    try:
        until(lambda: models.Node.objects.filter(node_id="n7", connected=True).exists(), "the joined node")
        assert b"was used by n7" in subprocess.run(join, capture_output=True, timeout=30, check=False).stderr
        nodes.remove(node_id="n7", actor="test")
        time.sleep(2.5)
        assert not models.Node.objects.exists()
    finally:
        running.close()
