"""Cards by NVML: through the real binding, against a driver's library that is made for the test."""

from __future__ import annotations

import asyncio
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from agent.core import cards, smi
from agent.core.cards import gpu_class
from agent.node.cardwatch import CardWatch
from agent.wire.facts import GpuFacts
from tests.agent.drivers import Card, Instance, listing, query
from tests.agent.node import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to make the driver's library with"),
]

FACTS = """
import json, msgspec
from agent.node.cardwatch import CardWatch
watch = CardWatch()
print(json.dumps([msgspec.to_builtins(watch.cards()), [sorted(h) for d, h in sorted((watch.held(5) or {}).items())]]))
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
    holders = pathlib.Path(os.environ["FAKE_NVML_HOLDERS"])
    holders.write_text(f"0 {early.pid}\\n1 1\\n")
    print((await node.until(lambda shards: next((s for s in shards if s.reason != early.reason), None))).reason)
    holders.write_text(f"0 {early.pid} 700\\n1 {early.pid} 300\\n0 1 5\\n")
    print((await node.state(S.READY)).state)
    await node.supervisor.measure_cards()
    (told,) = node.supervisor.observed()
    print([(m.device, m.memory_bytes >> 20) for m in told.devices_memory], told.took.load_s > 0)
    holders.write_text(f"0 {early.pid} -\\n1 {early.pid} 200\\n")
    await node.supervisor.measure_cards()
    print([m.memory_bytes >> 20 for m in node.supervisor.observed()[0].devices_memory])
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
    assert (second["uuid"], second["temperature_c"]) == ("GPU-81", 55)
    # It is a chip that computes in this machine's memory, of which its driver tells nothing.
    has = int(re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())[1]) * 1024
    assert (second["memory_bytes"], second["unified"]) == (has, True)
    assert (second["gpu_class"], first["unified"]) == (gpu_class("NVIDIA GB10", has), None)
    assert (first["utilization_percent"], second["utilization_percent"]) == (92.0, None)
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
from agent.node.cardwatch import CardWatch
watch = CardWatch()
print(json.dumps([msgspec.to_builtins(watch.cards().gpus[2:]), watch.names((0, 1200, 1202), 5),
                  watch.names((1, 1201), 5), sorted(watch.held(5)[1202])]))
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
    assert holders == [77]
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
    assert said == [
        "loading it answers, and holds no memory on cards 0, 1: it computes on the CPU; "
        f"{sys.executable} may be a build without CUDA",
        f"it answers, and holds no memory on card 1 (of 2 that it was given): it computes on the CPU; {sys.executable} "
        "may be a build without CUDA",
        "ready",
        "[(0, 700), (1, 300)] True",
        "[700, 300]",  # what the driver does not tell is as it was told last
    ]


def test_the_matrix_is_asked_for_once_and_a_tool_that_fails_keeps_the_cards(tmp_path: Path) -> None:
    tool, asked = tmp_path / "nvidia-smi", tmp_path / "asked"
    (tmp_path / "query").write_text(query(Card()))
    tool.write_text(
        f"#!/bin/sh\necho $1 >> {asked}\n"
        f"case $1 in -q) cat {tmp_path}/query ;; topo) printf '\\tGPU0\\tNUMA Affinity\\nGPU0\\t X \\t1\\n' ;; esac\n"
    )
    tool.chmod(0o755)
    watch = CardWatch(str(tool))
    assert watch.figures(0.1) is None, "nothing is known yet"
    found = [watch.cards() for _ in range(3)]
    assert [c.gpus and c.gpus[0].gpu_class for c in found] == ["h100-80g"] * 3
    assert asked.read_text().split().count("topo") == 1
    assert watch.held(10) == {0: {4711: 512 * 2**20}}
    (tmp_path / "query").write_text(query(Card(), Card(bus="00000000:3b:00.0", uuid="GPU-3b")))
    assert [g.problem for g in watch.cards().gpus or ()] == [None, None], "one more is no loss"
    (tmp_path / "query").write_text(query(Card(bus="00000000:3b:00.0", uuid="GPU-3b")))
    left = watch.cards().gpus or ()
    assert [(g.index, g.uuid) for g in left] == [(0, "GPU-18"), (1, "GPU-3b")], "each keeps its number"
    lost = "the driver no longer tells of card 0000:18:00.0: has it fallen off the bus? Nothing new is put on it"
    assert [g.problem for g in left] == [lost, lost]
    assert (watch.held(1), watch.figures(0.1)) == (None, None)
    (tmp_path / "query").write_text(query(Card(), Card(bus="00000000:3b:00.0", uuid="GPU-3b")))
    assert [g.problem for g in watch.cards().gpus or ()] == [None, None]
    (tmp_path / "query").write_text("Failed to initialize NVML: Unknown Error\n")
    kept, _ = watch.cards().gpus or ()
    assert (kept.gpu_class, kept.power_w) == ("h100-80g", None)
    assert kept.problem == "neither NVML nor nvidia-smi tells of it any more. Nothing new is put on it"
    assert CardWatch("/nowhere/nvidia-smi").cards().gpus is None


def test_a_chip_in_the_machines_memory_is_a_card_like_any_other(tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    chip = Card(name="NVIDIA GB10", total="N/A", free="N/A", utilization="8 %", temperature="45 C", power="9.30 W")
    old = Card(
        bus="00000000:3b:00.0", uuid="GPU-3b", name="Tesla T4", total="15360 MiB", free="15357 MiB",
        utilization="[Not Supported]", power="[Unknown Error]",
    )  # fmt: skip
    (tmp_path / "query").write_text(query(chip, old))
    tool.write_text(f"#!/bin/sh\ncase $1 in -q) cat {tmp_path}/query ;; esac\n")
    tool.chmod(0o755)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 127600748 kB\nMemAvailable: 118566368 kB\n")
    first, second = CardWatch(str(tool), root=tmp_path).cards().gpus or ()
    assert (first.gpu_class, first.unified) == ("gb10-122g", True)
    assert (first.memory_bytes, first.memory_free_bytes) == (127600748 * 1024, 118566368 * 1024)
    assert (first.utilization_percent, first.temperature_c, first.problem) == (8.0, 45, None)
    assert (second.memory_bytes, second.unified) == (15360 * 2**20, None)
    assert (second.utilization_percent, second.power_w) == (None, None)
    assert unified(Card(name="NVIDIA H100", total="N/A", free="N/A")) is None, "not told, and so unknown"


def unified(card: Card) -> bool | None:
    said = smi.query(query(card), listing(card))
    assert said is not None
    return cards.unified(said.gpus[0], {"MemTotal": 2**37}).unified


MOVING = """
import dataclasses, json, os, pathlib, time
from agent.node import cardwatch
from agent.node.cardwatch import CardWatch
cardwatch.FRESH_S = 1.0
watch = CardWatch(exporter=os.environ.get("EXPORTER"))
watch.cards()
def newest():
    until = time.monotonic() + 10
    while time.monotonic() < until:
        found = watch.figures(0.05)
        if found:
            return [dataclasses.asdict(f) for f in found]
        time.sleep(0.02)
print(json.dumps(newest()))
hang = pathlib.Path(os.environ["FAKE_NVML_HANG"])
hang.touch()
time.sleep(0.3)
began = time.monotonic()
while watch.figures(0.05) is not None and time.monotonic() - began < 5:
    time.sleep(0.05)
kept = watch.cards(within_s=0.3)
print(json.dumps([watch.figures(0.05), watch.held(0.1), [g.problem for g in kept.gpus], kept.gpus[0].power_w,
                  kept.gpus[0].uuid]))
hang.unlink()
print(json.dumps([g.problem for g in watch.cards().gpus]), newest() is not None)
"""


def test_what_moves_is_told_and_a_driver_that_hangs_holds_up_nobody(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NVML_GPM", "1")
    monkeypatch.setenv("FAKE_NVML_HANG", str(tmp_path / "hang"))
    moving, hung, again = run(library, MOVING)
    first, second = json.loads(moving)
    # Of the counters one is not supported, and one is not a number yet: both are unknown.
    assert first == {
        "index": 0, "memory_free_bytes": 48304750592, "temperature_c": 55, "power_w": 412.0,
        "utilization_percent": 92.0, "sm_active_percent": 69.0, "sm_occupancy_percent": 40.5,
        "tensor_active_percent": None,
        "dram_active_percent": None,
    }  # fmt: skip
    assert (second["sm_active_percent"], second["utilization_percent"]) == (None, None)
    figures, held, problems, power, uuid = json.loads(hung)
    assert (figures, held, power, uuid) == (None, None, None, "GPU-18")
    assert problems == ["the driver does not answer. Nothing new is put on it"] * 2
    assert again == "[null, null] True"


EXPORTED = """
# HELP DCGM_FI_PROF_SM_ACTIVE The ratio of cycles an SM has at least 1 warp assigned.
# TYPE DCGM_FI_PROF_SM_ACTIVE gauge
DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-18",device="nvidia0",modelName="NVIDIA L40S",Hostname="n1"} 0.694
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0",UUID="GPU-18",device="nvidia0"} 0.18
DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",UUID="GPU-18",device="nvidia0"} nan
DCGM_FI_PROF_SM_ACTIVE{gpu="2",UUID="GPU-c1",device="nvidia2",GPU_I_PROFILE="3g.40gb",GPU_I_ID="1"} 0.5
DCGM_FI_PROF_SM_OCCUPANCY{gpu="1",UUID="GPU-81" 0.2
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-18"} 92
"""


class Exporter(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(EXPORTED.encode())

    def log_message(self, *args: object) -> None:
        pass


def test_an_exporters_counters_fill_in_for_cards_whose_own_are_not_told(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Exporter) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("EXPORTER", f"http://127.0.0.1:{server.server_address[1]}/metrics")
        monkeypatch.setenv("FAKE_NVML_HANG", str(tmp_path / "hang"))
        monkeypatch.setenv("FAKE_NVML_CUT", "1")
        moving, *_ = run(library, MOVING)
        server.shutdown()
    counters = {
        f["index"]: (
            f["sm_active_percent"],
            f["sm_occupancy_percent"],
            f["tensor_active_percent"],
            f["dram_active_percent"],
        )
        for f in json.loads(moving)
    }
    assert counters == {0: (69.4, None, 18.0, None), 1: (None,) * 4, 1200: (None,) * 4, 1202: (None,) * 4}


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
