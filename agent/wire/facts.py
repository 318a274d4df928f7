"""What a node says of itself. An absent field is unknown; unknown is never zero."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One card as its driver tells it. `index` is the PCI-bus order; `uuid` survives a reboot."""

    index: int
    uuid: str | None = None
    name: str | None = None
    gpu_class: str | None = None
    """`l40s-45g`: the model and the driver's whole GiB."""
    memory_bytes: int | None = None
    memory_free_bytes: int | None = None
    compute_capability: str | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    utilization_percent: float | None = None


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """An engine as it was found on the node. `problem` says why it cannot be used."""

    name: str
    version: str | None = None
    build: str | None = None
    path: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Registration's facts; heartbeats carry the ones that move (`memory_free_bytes`, `disk_free_bytes`, gpus)."""

    hostname: str | None = None
    address: str | None = None
    """Where the gateway reaches this node's engines (management network)."""
    os: str | None = None
    arch: str | None = None
    boot_id: str | None = None
    cpu_count: int | None = None
    cpu_model: str | None = None
    vector_extensions: tuple[str, ...] | None = None
    """Of avx, avx2, avx512f, avx512_vnni, amx_tile, neon, sve: those the CPU has."""
    memory_bytes: int | None = None
    memory_free_bytes: int | None = None
    disk_bytes: int | None = None
    disk_free_bytes: int | None = None
    """Of the file system that holds the weights; absent where that one is shared."""
    ports_taken: tuple[int, ...] | None = None
    """TCP ports from 1024 to 32767 that something else than this agent's engines listens on."""
    driver: str | None = None
    agent_version: str | None = None
    labels: dict[str, str] | None = None
    gpus: tuple[GpuFacts, ...] | None = None
    """None: not asked or not known. Empty: asked, and there is none."""
    engines: tuple[EngineFacts, ...] | None = None
