"""RDMA adapters as sysfs shows them, under a root of the test's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core import rdma as core
from agent.node import rdma

MAPPED = "0000:0000:0000:0000:0000:ffff:0a00:0007"
LINK_LOCAL = "fe80:0000:0000:0000:0a1b:2cff:fe3d:4e5f"
NOBODY = "0000:0000:0000:0000:0000:0000:0000:0000"


def adapter(root: Path, name: str, **said: Any) -> Path:
    """A one-port adapter; what `said` names is written, None leaves the file out."""
    device = root / "sys/devices/pci0000:00" / said.get("bus", "0000:3b:00.0")
    device.mkdir(parents=True)
    (device / "numa_node").write_text(f"{said.get('numa', 0)}\n")
    place = root / "sys/class/infiniband" / name
    port = place / "ports/1"
    (port / "gid_attrs/types").mkdir(parents=True)
    (port / "gid_attrs/ndevs").mkdir()
    (port / "gids").mkdir()
    (port / "counters").mkdir()
    (place / "device").symlink_to(device)
    texts = {
        "state": "4: ACTIVE",
        "rate": "200 Gb/sec (4X HDR)",
        "link_layer": "InfiniBand",
        "sm_lid": "0x1",
        **said.get("texts", {}),
    }
    for file, text in texts.items():
        if text is not None:
            (port / file).write_text(f"{text}\n")
    for index, (gid, kind, netdev) in enumerate(
        said.get("gids", [("fe80:0000:0000:0000:e8eb:d303:0030:1111", "IB/RoCE v1", "")])
    ):
        (port / f"gids/{index}").write_text(f"{gid}\n")
        (port / f"gid_attrs/types/{index}").write_text(f"{kind}\n")
        if netdev:
            (port / f"gid_attrs/ndevs/{index}").write_text(f"{netdev}\n")
    for counter, value in said.get("counters", {"symbol_error": 0, "link_downed": 0}).items():
        (port / f"counters/{counter}").write_text(f"{value}\n")
    return port


ROCE = [
    (LINK_LOCAL, "IB/RoCE v1", "ens1f0np0"),
    (LINK_LOCAL, "RoCE v2", "ens1f0np0"),
    (MAPPED, "IB/RoCE v1", "ens1f0np0"),
    (MAPPED, "RoCE v2", "ens1f0np0"),
    (NOBODY, "RoCE v2", ""),
]


def test_infiniband(tmp_path: Path) -> None:
    adapter(tmp_path, "mlx5_0", counters={"symbol_error": 3, "link_downed": 1, "port_xmit_wait": 99})
    (port,) = rdma.ports(tmp_path) or ()
    assert (port.adapter, port.port, port.kind, port.active, port.rate_gbps) == ("mlx5_0", 1, "infiniband", True, 200.0)
    assert (port.subnet_prefix, port.subnet_manager_lid) == ("fe80000000000000", 1)
    assert (port.numa_node, port.bus_id) == (0, "0000:3b:00.0")
    assert (port.gid_index, port.netdev, port.errors) == (None, None, 4)


def test_roce_and_its_routed_entry(tmp_path: Path) -> None:
    adapter(tmp_path, "mlx5_2", texts={"link_layer": "Ethernet", "rate": "100 Gb/sec (2X HDR)"}, gids=ROCE, numa=-1)
    (port,) = rdma.ports(tmp_path) or ()
    assert (port.kind, port.gid_index, port.netdev, port.rate_gbps) == ("roce", 3, "ens1f0np0", 100.0)
    assert (port.numa_node, port.subnet_prefix) == (None, None)


def test_a_port_that_goes_down_and_comes_back(tmp_path: Path) -> None:
    one = adapter(tmp_path, "mlx5_0")
    adapter(tmp_path, "mlx5_1", bus="0000:5e:00.0")
    assert rdma.states(tmp_path) == (True, True)
    (one / "state").write_text("1: DOWN\n")
    assert rdma.states(tmp_path) == (False, True)
    assert [p.active for p in rdma.ports(tmp_path) or ()] == [False, True]
    (one / "state").write_text("2: INIT\n")
    assert rdma.states(tmp_path) == (False, True), "no subnet manager has seen it"
    (one / "state").unlink()
    assert rdma.states(tmp_path) == (None, True)


def test_what_is_not_there_is_not_known(tmp_path: Path) -> None:
    assert rdma.ports(tmp_path) is None, "nobody can say"
    (tmp_path / "sys/class").mkdir(parents=True)
    assert rdma.ports(tmp_path) == ()
    assert rdma.states(tmp_path) is None
    adapter(tmp_path, "mlx5_0", texts=dict.fromkeys(("state", "rate", "link_layer", "sm_lid")), gids=[], counters={})
    (port,) = rdma.ports(tmp_path) or ()
    assert (port.kind, port.active, port.rate_gbps, port.subnet_manager_lid, port.errors) == (None,) * 5


@pytest.mark.parametrize(
    ("entries", "index"),
    [
        (ROCE, 3),
        (ROCE[:3], None),
        ([("2001:0db8:0000:0000:0000:0000:0000:0001", "RoCE v2", ""), *ROCE], 4),
        ([("2001:0db8:0000:0000:0000:0000:0000:0001", "RoCE v2", "")], 0),
        ([("garbage", "RoCE v2", ""), (MAPPED, "RoCE v2", "")], 1),
        ([], None),
    ],
)
def test_the_entry_that_is_routed(entries: list[tuple[str, str, str]], index: int | None) -> None:
    gids = {n: gid for n, (gid, _, _) in enumerate(entries)}
    assert core.routed_gid(gids, {n: kind for n, (_, kind, _) in enumerate(entries)}) == index


def test_the_subnet_manager_in_charge() -> None:
    said = "sminfo: sm lid 1 sm guid 0xB8599F03000AAAA0, activity count 41 priority 14 state 3 SMINFO_MASTER\n"
    assert core.master(said) == "0xb8599f03000aaaa0"
    assert core.master(said.replace("state 3 SMINFO_MASTER", "state 2 SMINFO_STANDBY")) is None
    assert core.master("ibwarn: [1] mad_rpc: _do_madrpc failed") is None


@given(st.text())
def test_no_text_breaks_a_reader(text: str) -> None:
    for reader in (
        core.kind,
        core.active,
        core.rate_gbps,
        core.number,
        core.numa_node,
        core.subnet_prefix,
        core.master,
    ):
        reader(text)
    core.routed_gid({0: text, 1: MAPPED}, {0: text, 1: "RoCE v2"})
