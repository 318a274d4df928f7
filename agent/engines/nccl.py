"""Environment of engines that compute with CUDA and talk over NCCL: which cards, and over which fabric.

Each variable is here for a failure that tells nothing: left to itself NCCL tries every adapter it finds, also one on
a fabric that the peer is not on, and then waits for ever; CUDA numbers cards by speed, placement by their place on
the bus; a RoCE adapter's first GID is often a link-local one, which does not route.
"""

from __future__ import annotations

from agent.wire.facts import INSTANCES
from agent.wire.shard import Fabric, ShardSpec

FAMILIES = (
    "NCCL_",
    "CUDA_",
    "CUBLAS_WORKSPACE_CONFIG",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "TORCH_NCCL_",
    "TORCH_CUDA_ARCH_LIST",
    "OMP_",
    "SAFETENSORS_FAST_GPU",
    "TOKENIZERS_PARALLELISM",
)
"""What tunes the libraries below an engine. Triton's, Inductor's and FlashInfer's variables name compilers and folders
of code, and are not among them."""
OWN = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "NCCL_IB_HCA",
    "NCCL_IB_GID_INDEX",
    "NCCL_IB_DISABLE",
    "NCCL_SOCKET_IFNAME",
    "NCCL_SOCKET_FAMILY",
    "NCCL_MNNVL_ENABLE",
    "NCCL_CUMEM_ENABLE",
    "NCCL_COMM_ID",
    "NCCL_HOSTID",
    "NCCL_RAS_*",  # a port that tells about the job
    # Files that are read or written, and code that is loaded.
    "NCCL_CONF_FILE",
    "NCCL_DEBUG_FILE",
    "NCCL_TOPO_*",
    "NCCL_GRAPH_*",
    "NCCL_NET",
    "NCCL_XML_DUMP_FILE",
    "CUDA_INJECTION*",
    "CUDA_COREDUMP_*",
    "CUDA_ENABLE_*",
    "CUDA_MPS_*",
    "CUDA_HOME",
    "CUDA_ROOT",
    "TORCH_NCCL_DEBUG_INFO_*",
    "OMP_TOOL*",
)


def devices(shard: ShardSpec) -> dict[str, str]:
    """The cards by their place on the bus; a MIG instance's UUID is filled in by the agent, which asks the driver."""
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(str(d) for d in shard.devices)}


def whole_cards(shard: ShardSpec) -> bool:
    return all(d < INSTANCES for d in shard.devices)


def fabric(shard: ShardSpec, interface: str | None) -> dict[str, str]:
    """How this rank reaches the others. `interface` holds this node's address, and serves where the fabric names no
    device of its own. Empty where there are no others."""
    if shard.gang is None or shard.world_size < 2:
        return {}
    found: dict[str, str] = {}
    device = (shard.gang.fabric.interface if shard.gang.fabric else None) or interface
    if device is not None:
        found["NCCL_SOCKET_IFNAME"] = f"={device}"  # this one, and none whose name begins like it
        found["GLOO_SOCKET_IFNAME"] = device
        found["TP_SOCKET_IFNAME"] = device
    if all(_is_ipv6(a) for a in shard.gang.addresses):
        found["NCCL_SOCKET_FAMILY"] = "AF_INET6"
    return found | _links(shard.gang.fabric)


def _links(fabric: Fabric | None) -> dict[str, str]:
    found: dict[str, str] = {}
    if fabric is not None and fabric.kind == "nvlink":
        # NVLink over several machines shares memory by CUDA's own handles, which NCCL needs cuMem for.
        found |= {"NCCL_MNNVL_ENABLE": "1", "NCCL_CUMEM_ENABLE": "1"}
    if fabric is None or fabric.kind == "ethernet" or not fabric.adapters:
        return found | {"NCCL_IB_DISABLE": "1"}
    found["NCCL_IB_HCA"] = f"={','.join(fabric.adapters)}"
    if fabric.kind == "roce" and fabric.gid_index is not None:
        found["NCCL_IB_GID_INDEX"] = str(fabric.gid_index)
    return found


def _is_ipv6(address: str) -> bool:
    return ":" in address
