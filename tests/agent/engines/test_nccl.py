"""The environment of a fabric: one that was chosen is the only one that NCCL sees."""

from __future__ import annotations

import pytest

from agent.engines import nccl
from agent.wire.shard import Fabric
from tests.agent.engines.profiles import INFINIBAND, NVLINK, ROCE, shard

IB = {"NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1"}
OFF = {"NCCL_IB_DISABLE": "1"}


def of(fabric: Fabric | None, interface: str | None = None, nodes: int = 2) -> dict[str, str]:
    return nccl.fabric(shard("vllm", (0,), 0, fabric, nodes=nodes), interface)


@pytest.mark.parametrize(
    ("fabric", "links"),
    [
        (INFINIBAND, IB),
        (ROCE, {"NCCL_IB_HCA": "=mlx5_2:1", "NCCL_IB_GID_INDEX": "3"}),
        (Fabric("r", "roce", ("mlx5_2:1",)), {"NCCL_IB_HCA": "=mlx5_2:1"}),
        (Fabric("i", "infiniband", ("mlx5_0:1",), gid_index=3), {"NCCL_IB_HCA": "=mlx5_0:1"}),  # it has none
        (NVLINK, {"NCCL_MNNVL_ENABLE": "1", "NCCL_CUMEM_ENABLE": "1", "NCCL_IB_HCA": "=mlx5_0:1"}),
        (Fabric("n", "nvlink"), {"NCCL_MNNVL_ENABLE": "1", "NCCL_CUMEM_ENABLE": "1", **OFF}),
        (Fabric("e", "ethernet"), OFF),
        (Fabric("i", "infiniband"), OFF),  # which of the adapters is on it nobody said
        (None, OFF),
    ],
)
def test_links(fabric: Fabric | None, links: dict[str, str]) -> None:
    found = of(fabric)
    assert {k: v for k, v in found.items() if "IFNAME" not in k} == links


def test_the_devices_that_carry_what_is_not_rdma() -> None:
    names = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
    assert [of(INFINIBAND, "eth0").get(n) for n in names] == ["=eth0", "eth0", "eth0"]
    assert [of(ROCE, "eth0").get(n) for n in names] == ["=ens5", "ens5", "ens5"]  # the fabric's own
    assert [of(INFINIBAND).get(n) for n in names] == [None] * 3


def test_one_node_talks_to_nobody() -> None:
    assert of(INFINIBAND, "eth0", nodes=1) == {}


def test_addresses_of_version_6() -> None:
    there = shard("vllm", (0,), addresses=("fd00::1", "fd00::2"), nodes=2)
    assert nccl.fabric(there, None) == {"NCCL_SOCKET_FAMILY": "AF_INET6", **OFF}


def test_cards_are_counted_as_they_lie_on_the_bus() -> None:
    assert nccl.devices(shard("vllm", (2, 3))) == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "2,3"}
    assert nccl.devices(shard("vllm", ()))["CUDA_VISIBLE_DEVICES"] == ""
