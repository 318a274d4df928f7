"""Shards as the agent is asked for them: one engine, one way to spread it, each."""

from __future__ import annotations

from typing import Any

from agent.engine import Paths
from agent.wire.shard import Fabric, Gang, Profile, ShardSpec, Source

KEY = "the-key-of-this-replica"
PATHS = {
    "llamacpp": Paths("/weights/m.gguf", "/opt/llama.cpp/llama-server", "/scratch"),
    "vllm": Paths("/weights/m", "/opt/vllm/bin/vllm", "/scratch", "eth0"),
    "sglang": Paths("/weights/m", "/opt/sglang/bin/python", "/scratch", "eth0"),
    "trtllm": Paths("/weights/m", "/opt/trtllm/bin/python", "/scratch", "eth0"),
}
WHEEL = Paths("/weights/m.gguf", "/opt/xllamacpp/bin/python3.11", "/scratch")
INFINIBAND = Fabric("ib0", "infiniband", ("mlx5_0:1", "mlx5_1:1"))
ROCE = Fabric("roce0", "roce", ("mlx5_2:1",), gid_index=3, interface="ens5")
NVLINK = Fabric("nvlink 1/0", "nvlink", ("mlx5_0:1",))


def shard(
    engine: str,
    devices: tuple[int, ...] = (0,),
    rank: int = 0,
    fabric: Fabric | None = None,
    addresses: tuple[str, ...] = ("10.0.0.1", "10.0.0.2"),
    **profile: Any,
) -> ShardSpec:
    values = {"gpus": len(devices), "gpu_class": "h100-80g" if devices else None, "parallel": 32, **profile}
    nodes = values.get("nodes", 1)
    return ShardSpec(
        shard_id=f"r-0123456789.{rank}",
        replica_id="r-0123456789",
        model="m",
        profile=Profile("p", engine, **values),
        source=Source("path:/weights/m"),
        port=9100,
        key=KEY,
        rank=rank,
        world_size=nodes,
        devices=devices,
        gang=Gang(addresses, 9200, fabric) if nodes > 1 else None,
    )


FOUR = (0, 1, 2, 3)
SHARDS: dict[str, ShardSpec] = {
    "llamacpp-layers": shard("llamacpp", FOUR, context_length=8192, args=("--flash-attn", "on")),
    "llamacpp-old-split": shard("llamacpp", (0, 1), args=("--tensor-split", "3,1,1", "--flash-attn", "on")),
    "llamacpp-split": shard("llamacpp", (0, 1), args=("--tensor-split", "3,1")),
    "llamacpp-wheel-layers": shard("llamacpp", (0, 1), args=("-ts", "3,1", "--flash-attn", "on")),
    "llamacpp-mig": shard("llamacpp", (1002,), gpu_class="a100-80g-mig-3g.40gb"),
    "vllm-one-card": shard("vllm", context_length=32768),
    "vllm-four-cards": shard("vllm", FOUR, tp=4, env={"VLLM_LOGGING_LEVEL": "DEBUG", "NCCL_DEBUG": "INFO"}),
    "vllm-two-stages": shard("vllm", FOUR, tp=2, pp=2, args=("--gpu-memory-utilization", "0.85")),
    "vllm-mig": shard("vllm", (1002,), gpu_class="a100-80g-mig-3g.40gb", tp=1),
    "vllm-embeddings": shard("vllm", embeddings=True),
    "vllm-embeddings-own-runner": shard("vllm", embeddings=True, args=("--runner", "pooling", "--convert", "embed")),
    "vllm-mp-leader": shard("vllm", FOUR, 0, INFINIBAND, nodes=2, tp=4, pp=2, executor="mp"),
    "vllm-mp-worker": shard("vllm", FOUR, 1, INFINIBAND, nodes=2, tp=4, pp=2, executor="mp"),
    "vllm-mp-unsaid": shard("vllm", FOUR, 1, ROCE, nodes=2),
    "vllm-mp-nvlink": shard("vllm", FOUR, 1, NVLINK, nodes=2, tp=8),
    "vllm-mp-nameless": shard("vllm", FOUR, 0, nodes=2, addresses=("fd00::1", "fd00::2")),
    "vllm-ray-leader": shard("vllm", FOUR, 0, ROCE, nodes=2, tp=4, pp=2, executor="ray"),
    "vllm-ray-worker": shard("vllm", FOUR, 1, ROCE, nodes=2, tp=4, pp=2, executor="ray"),
    "sglang-one-card": shard("sglang", context_length=32768),
    "sglang-four-cards": shard("sglang", FOUR, tp=4, args=("--mem-fraction-static", "0.85")),
    "sglang-leader": shard("sglang", FOUR, 0, INFINIBAND, nodes=2, tp=8),
    "sglang-worker": shard("sglang", FOUR, 1, INFINIBAND, nodes=2, tp=8),
    "sglang-embeddings": shard("sglang", embeddings=True),
    "trtllm-one-card": shard("trtllm", context_length=32768),
    "trtllm-four-cards": shard(
        "trtllm", FOUR, tp=4, args=("--max_batch_size", "64", "--free_gpu_memory_fraction", "0.85")
    ),
    "trtllm-settings": shard("trtllm", FOUR, tp=2, pp=2, args=("--set", "kv_cache_config.enable_block_reuse=false")),
}
