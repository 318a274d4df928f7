"""Cards by NVML: through the real binding, against a driver's library that is made for the test."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from agent.core import smi
from agent.core.cards import gpu_class
from agent.wire.facts import GpuFacts
from tests.agent.drivers import Card, Instance, listing, query
from tests.agent.node import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to make the driver's library with"),
]

FACTS = """
import json, msgspec
from agent.node import gpus
print(json.dumps([msgspec.to_builtins(gpus.found()), [sorted(h) for h in gpus.holders((0, 1)) or ()]]))
"""

READY = """
import asyncio, os, pathlib, sys
from dataclasses import replace
from tests.agent.node import Node, Scripted, tiny
from tests.agent.test_supervisor import SERVER
from agent.wire.shard import ShardState as S
async def main():
    node = Node(pathlib.Path(sys.argv[1]), engine=Scripted(SERVER + "serve()"))
    spec = replace(tiny(engine="scripted", startup_timeout_s=20.0), devices=(0, 1))
    node.want(spec)
    early = await node.until(lambda shards: next((s for s in shards if s.reason or s.state is S.READY), None))
    print(early.state, early.reason)
    pathlib.Path(os.environ["FAKE_NVML_HOLDERS"]).write_text(f"0 {early.pid}\\n1 {early.pid}\\n0 1\\n")
    print((await node.state(S.READY)).state)
    await node.close()
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).with_name("nvml.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", source], check=True)
    return folder


def run(library: Path, code: str, *args: object, holders: Sequence[str] = ()) -> list[str]:
    held = library / "holders"
    held.write_text("\n".join(holders or (f"0 {os.getpid()}", "1 1", f"1 {os.getpid()}")) + "\n")
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, args)],
        env={**os.environ, "LD_LIBRARY_PATH": str(library), "FAKE_NVML_HOLDERS": str(held)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=40,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_cards_are_told_in_the_order_of_the_bus(library: Path) -> None:
    (said,) = run(library, FACTS)
    cards, holders = json.loads(said)
    assert cards["driver"] == "570.86.15"
    first, second = cards["gpus"]
    assert (first["index"], first["uuid"], first["name"], first["gpu_class"]) == (
        0,
        "GPU-18",
        "NVIDIA L40S",
        "l40s-45g",
    )
    assert (first["temperature_c"], first["power_w"]) == (55, 412.0)
    # What a card does not tell is unknown, and the rest of it still told.
    assert (second["uuid"], second["memory_bytes"], second["gpu_class"], second["temperature_c"]) == (
        "GPU-81", None, None, 55
    )  # fmt: skip
    assert first["utilization_percent"] is None
    assert holders == [[os.getpid()], sorted([1, os.getpid()])]


def test_what_stands_around_the_cards(library: Path) -> None:
    (said,) = run(library, FACTS)
    first, second = json.loads(said)[0]["gpus"]
    assert first["pcie"] == {"generation": 4, "width": 8, "card_generation": 5, "card_width": 16}
    assert (first["ecc_uncorrected"], first["remap_pending"], first["bus_id"]) == (2, True, "0000:18:00.0")
    assert (first["nvlinks"], second["nvlinks"]) == ([{"peer": 1, "links": 4}], [{"peer": 0, "links": 4}])
    assert first["switched"] is False
    assert first["domain"] == {"state": "Completed", "cluster": "a1000000-0000-0000-0000-000000000055", "clique": 7}
    assert second["domain"] is None
    assert first["holders"] == [{"pid": os.getpid(), "memory_bytes": 2**20}]


CUT = """
import json, msgspec
from agent.node import gpus
print(json.dumps([msgspec.to_builtins(gpus.found().gpus[2:]), gpus.names((0, 1200, 1202)), gpus.names((1, 1201)),
                  [sorted(h) for h in gpus.holders((1202,)) or ()]]))
"""


def test_a_card_that_is_cut_is_its_instances_and_nvidia_smi_tells_the_same(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NVML_CUT", "1")
    (said,) = run(library, CUT, holders=["1202 77"])
    told, names, unknown, holders = json.loads(said)
    assert [g["index"] for g in told] == [1200, 1202]
    assert names == ["0", "MIG-c1-0", "MIG-c1-2"], "as CUDA is told"
    assert unknown is None
    assert holders == [[77]]
    card = Card(
        bus="00000000:C1:00.0", uuid="GPU-c1", mig="Enabled", pending="Enabled", utilization="N/A", temperature="55 C",
        power="412.00 W", width="8x", generation="4",
        ecc="<volatile><dram_uncorrectable>2</dram_uncorrectable></volatile>",
        instances=[Instance(0, "3g.40gb", 40448), Instance(2, "1g.10gb+me", 9728, gpu_instance=5)],
        processes="<process_info><gpu_instance_id>5</gpu_instance_id><pid>77</pid><used_memory>1 MiB</used_memory>"
        "</process_info>",
    )  # fmt: skip
    by_tool = smi.query(query(card), listing(card))
    assert by_tool is not None
    same = {"index": 0, "compute_capability": None, "power_limit_w": None, "remap_pending": None}
    by_library = [msgspec.convert(gpu, GpuFacts) for gpu in told]
    assert [replace(gpu, **same) for gpu in by_tool.gpus] == [replace(gpu, **same) for gpu in by_library]


async def test_an_engine_that_holds_no_memory_on_its_cards_is_not_ready(library: Path, tmp_path: Path) -> None:
    said = await asyncio.to_thread(run, library, READY, tmp_path / "home")
    assert said == ["loading it answers, and holds no memory on its cards: it computes on the CPU", "ready"]


@pytest.mark.parametrize(
    ("name", "memory", "wanted"),
    [
        ("NVIDIA L40S", 48305799168, "l40s-45g"),
        ("NVIDIA H200", 150754820096, "h200-140g"),
        ("NVIDIA A100-SXM4-80GB", 85899345920, "a100-80g"),
        ("NVIDIA GeForce RTX 4090", 25757220864, "4090-24g"),
        ("Tesla T4", 16106127360, "t4-15g"),
        (None, 1, None),
        ("NVIDIA GB10", None, None),
    ],
)
def test_a_class_is_the_model_and_the_drivers_own_size(
    name: str | None, memory: int | None, wanted: str | None
) -> None:
    assert gpu_class(name, memory) == wanted
