"""Three machines with systemd join, serve, are rebooted and upgraded: as an operator does it, by the words of
docs/operating.md. Run by hand: it takes some minutes, and a root file system (`tests/nodes/machines.py`)."""

from __future__ import annotations

import json
import threading
import time

import pytest

from tests.nodes import wheels
from tests.nodes.house import House, Stream, ask

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_each_machine_runs_one_engine_as_its_own_user(house: House) -> None:
    booted = house.machines
    pids = house.spread()
    assert set(pids) == {m.name for m in booted}
    for machine in booted:
        assert machine.run(f"ps -o user= -p {pids[machine.name]}").strip().startswith("llmgw-e")
        assert machine.run("systemctl is-active llmgw-agent").strip() == "active"
        told = json.loads(machine.run("/opt/llmgw/bin/llmgw-agent doctor --json", check=False))
        assert not [f for f in told["findings"] if f["level"] == "problem"], told["findings"]


def test_a_library_that_is_missing_is_named_before_anything_is_placed(house: House) -> None:
    cluster, booted = house.cluster, house.machines
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


def test_an_upgraded_agent_and_a_killed_one_find_their_engines_serving(house: House) -> None:
    cluster, booted = house.cluster, house.machines
    before = house.spread()
    first, last = booted[0], booted[-1]
    first.run("/opt/llmgw/bin/pip install -q --no-index --no-deps --find-links /srv/shared/newer --upgrade llmgw")
    first.run("systemctl restart llmgw-agent")
    last.run("systemctl kill -s KILL --kill-whom=main llmgw-agent")
    cluster.until(lambda: cluster.command("node", "show", first.name)["agent_version"] == wheels.NEWER, 30)
    cluster.until(lambda: {m.name for m in booted} <= set(house.ready_nodes()), 30)
    time.sleep(3)  # what would be started afresh is, by then
    assert house.engines() == before
    for machine in (first, last):
        assert machine.run(f"ps -o stat= -p {before[machine.name]}").strip()


def test_a_reboot_in_the_midst_of_streams_costs_those_of_that_machine(house: House) -> None:
    cluster, booted = house.cluster, house.machines
    before = house.spread()
    gone = booted[1]
    streams = [Stream(cluster) for _ in range(12)]
    for stream in streams:
        stream.start()
    cluster.until(lambda: all('"content"' in s.text for s in streams), 30)
    rebooting = threading.Thread(target=gone.reboot)
    rebooting.start()
    answered = 0
    while rebooting.is_alive():  # others serve meanwhile
        assert ask(cluster) == "7"
        answered += 1
    rebooting.join()
    for stream in streams:
        stream.join(60)
        assert stream.over in ("[DONE]", "error"), stream.text[-500:]
    assert answered > 3
    cluster.until(lambda: set(house.engines()) == set(before), 120)
    after = house.engines()
    kept = {m.name for m in booted} - {gone.name}
    assert {n: after[n] for n in kept} == {n: before[n] for n in kept}
