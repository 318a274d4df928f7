"""The whole of it: own control plane, real link, pretended nodes, a bad day, and what must hold after each fault."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.rehearsal.values import EngineSeen, NodeSeen, Seen
from fleet.core.replica import State
from llmgw.rehearsal import home as own_home
from llmgw.rehearsal import invariants
from llmgw.rehearsal.invariants import Before, ReplicaRow, Rows, ShardRow

ROOT = Path(__file__).resolve().parent.parent.parent
DAY = {
    "name": "twenty nodes",
    "nodes": [
        {"template": "h200x8", "id": "h-{n}", "count": 10, "racks": 2, "fabric": "ib"},
        {"template": "l40sx4", "id": "l-{n}", "count": 10},
    ],
    "models": [
        {
            "definition": {
                "name": "large",
                "source": "hf:pretended/large/large.gguf",
                "context_length": 8192,
                "scaling": {"min": 5, "max": 5},
                "profiles": [{"name": "h200", "engine": "llamacpp", "gpu_class": "h200-140g", "gpus": 4}],
            },
            "weights_gb": 100,
        },
        {
            "definition": {
                "name": "small",
                "source": "hf:pretended/small/small.gguf",
                "context_length": 8192,
                "scaling": {"min": 5, "max": 5},
                "profiles": [{"name": "l40s", "engine": "llamacpp", "gpu_class": "l40s-45g", "parallel": 8}],
            },
        },
    ],
    "load_speed": 1000,
    "answer_speed": 20,
    "bound": "60s",
    "settings": {"fleet.node_lost_s": 20},
    "traffic": {"rate": 2, "prompt_tokens": 20, "answer_tokens": 10},
    "faults": [
        {"do": "crash", "model": "small"},
        {"do": "agents_restart", "share": 0.5},
        {"do": "lie_shard", "count": 1, "for": "500ms"},
        {"do": "node_loss", "count": 1, "for": "500ms"},
        {"do": "redis_restart"},
    ],
}


def command(*arguments: str, home: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "manage.py", "rehearse", *arguments],
        cwd=ROOT,
        env={**os.environ, "LLMGW_HOME": str(home / "mine"), "TMPDIR": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_bad_day_of_twenty_nodes(tmp_path: Path) -> None:
    (tmp_path / "day.yaml").write_text(yaml.safe_dump(DAY))
    process = command(str(tmp_path / "day.yaml"), "--json", home=tmp_path)
    out, err = process.communicate(timeout=280)
    told = json.loads(out)
    assert process.returncode == 0, (told, err)
    assert told["held"]
    assert len(told["acts"]) == len(DAY["faults"]) + 1  # type: ignore[arg-type]
    assert told["requests"]["answered"] > 3
    assert not list(tmp_path.glob("llmgw-rehearsal-*"))
    assert not (tmp_path / "mine" / "db.sqlite3").exists()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "day.yaml").write_text(yaml.safe_dump({**DAY, "faults": []}))
    process = command(str(tmp_path / "day.yaml"), "--stay", home=tmp_path)
    assert process.stdout is not None
    for line in process.stdout:
        if "nodes join" in line:
            break
    (home,) = tmp_path.glob("llmgw-rehearsal-*")
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=90)
    assert not home.exists()
    marked = f"LLMGW_HOME={home}".encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            assert marked not in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue


def refused(*arguments: str, home: Path) -> tuple[int, str]:
    process = command(*arguments, home=home)
    _, err = process.communicate(timeout=60)
    return process.returncode, err


@pytest.mark.slow
def test_a_real_cluster_is_never_touched(tmp_path: Path) -> None:
    world = tmp_path / "day.yaml"
    world.write_text(yaml.safe_dump(DAY))
    real = tmp_path / "real"
    real.mkdir()
    (real / "db.sqlite3").write_text("precious")
    code, said = refused(str(world), "--home", str(real), "--into", home=tmp_path)
    assert (code, "never touches a real cluster" in said) == (1, True)
    code, said = refused(str(world), "--home", str(real), home=tmp_path)
    assert (code, "is not empty" in said) == (1, True)
    assert sorted(p.name for p in real.iterdir()) == ["db.sqlite3"]
    code, said = refused(str(world), "--into", home=tmp_path)
    assert (code, "name it with --home" in said) == (2, True)


def test_a_rehearsals_store_is_told_from_a_real_one() -> None:
    assert own_home.is_rehearsal(own_home.new_store_id())
    assert not own_home.is_rehearsal("c0ffee00-0000-4000-8000-000000000000")


# What must hold, by a world in which nothing is wrong, and one thing wrong at a time.

SHARD = ShardRow("r-1.0", "n1", 18100, (0,), State.READY, 1, "m")
ROWS = Rows((ReplicaRow("r-1", "m", State.READY),), (SHARD,), (("n1", 0, "r-1.0"),), frozenset({"n1", "n2"}))
ENGINE = EngineSeen("r-1.0", "m", 1001, 0.0, 18100, (0,), 1, True, "well")
WELL = Seen((NodeSeen("n1", True, True, (0, 1), (ENGINE,)), NodeSeen("n2", True, True, (), ())))
BEFORE = Before(frozenset({("n1", "r-1.0", 1001)}), {"m": 1})


def judged(rows: Rows = ROWS, seen: Seen = WELL, before: Before = BEFORE, **more: Any) -> dict[str, list[str]]:
    found = invariants.broken(rows, seen, before, more.get("may_end", ()), more.get("away", ()))
    return {name: problems for name, problems in found.items() if problems}


def world(*engines: EngineSeen, up: bool = True) -> Seen:
    return Seen((NodeSeen("n1", up, up, (0, 1), engines), NodeSeen("n2", True, True, (), ())))


def test_a_sound_world_breaks_nothing() -> None:
    assert not judged()


@pytest.mark.parametrize(
    ("name", "rows", "seen"),
    [
        ("owned", Rows((), (), (), ROWS.connected), WELL),
        ("owned", ROWS, world()),
        ("owned", ROWS, world(EngineSeen("r-1.0", "m", 1001, 0.0, 18101, (0,), 1, True, "well"))),
        ("claims", Rows(ROWS.replicas, ROWS.shards, (), ROWS.connected), WELL),
        ("claims", Rows(ROWS.replicas, ROWS.shards, (*ROWS.claims, ("n1", 7, "r-9.0")), ROWS.connected), WELL),
        ("gpus", ROWS, world(ENGINE, EngineSeen("r-2.0", "m", 1002, 0.0, 18102, (0,), 1, True, "well"))),
        ("gpus", ROWS, Seen(WELL.nodes, ("n1: r-1.0 and r-2.0 on 0",))),
        ("back", Rows((ReplicaRow("r-1", "m", State.PARKED),), ROWS.shards, ROWS.claims, ROWS.connected), WELL),
        ("back", Rows(ROWS.replicas, ROWS.shards, ROWS.claims, frozenset({"n2"})), WELL),
        ("kept", ROWS, world(EngineSeen("r-1.0", "m", 1007, 0.0, 18100, (0,), 1, True, "well"))),
    ],
)
def test_each_invariant_is_seen_broken(name: str, rows: Rows, seen: Seen) -> None:
    assert name in judged(rows, seen)


def test_what_a_fault_ends_may_end_and_what_waits_for_room_is_back() -> None:
    again = world(EngineSeen("r-1.0", "m", 1007, 0.0, 18100, (0,), 1, True, "well"))
    assert not judged(seen=again, may_end={"r-1.0"})
    assert not judged(seen=again, may_end={"n1/*"})
    waits = Rows((ReplicaRow("r-1", "m", State.PENDING, "no_capacity"),), (), (), frozenset({"n2"}))
    assert not judged(waits, world(up=False), may_end={"n1/*"}, away={"n1"})


def test_the_other_ranks_of_what_a_fault_ends_may_end_too() -> None:
    before = Before(frozenset({("n1", "r-1.0", 1001), ("n2", "r-1.1", 1002), ("n2", "r-2.0", 1003)}))
    kept = NodeSeen("n2", True, True, (0, 1), (EngineSeen("r-2.0", "m", 1003, 0.0, 18101, (1,), 1, True, "well"),))
    for may_end in ({"r-1.0"}, {"n1/*"}):
        assert not invariants.broken(Rows(), Seen((kept,)), before, may_end, ())["kept"]
        gone = invariants.broken(Rows(), Seen(()), before, may_end, ())["kept"]
        assert gone == ["r-2.0 on n2 ended without need"]
