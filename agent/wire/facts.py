"""What a node says of itself. An absent field is unknown; unknown is never zero."""

from __future__ import annotations

from dataclasses import dataclass

from agent.wire.shard import Gang

INSTANCES = 1000
"""Devices from here on are MIG instances: 1000 + 100 × card + instance."""


def device_name(index: int) -> str:
    """As people see a device: `0`, or `0/mig2`."""
    if index < INSTANCES:
        return str(index)
    card, instance = divmod(index - INSTANCES, 100)
    return f"{card}/mig{instance}"


@dataclass(frozen=True, slots=True)
class PcieFacts:
    """A card's link. `generation` is the fastest that card and slot reach together (what it runs at now drops while the
    card idles), `width` the lanes in use; the others what the card could do elsewhere."""

    generation: int | None = None
    width: int | None = None
    card_generation: int | None = None
    card_width: int | None = None


@dataclass(frozen=True, slots=True)
class NvLink:
    """NVLink from a card to another one, by its number of links."""

    peer: int
    links: int


@dataclass(frozen=True, slots=True)
class DomainFacts:
    """A card's place among the NVLink domains that reach over several machines. `state` as the driver words it."""

    state: str | None = None
    cluster: str | None = None
    clique: int | None = None


@dataclass(frozen=True, slots=True)
class HolderFacts:
    """A process that holds memory on a card."""

    pid: int
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One device as its driver tells it: a card, or a MIG instance of one. `uuid` survives a reboot."""

    index: int
    """The card's place on the PCI bus; 1000 + 100 × card + instance for a MIG instance."""
    uuid: str | None = None
    name: str | None = None
    gpu_class: str | None = None
    """`l40s-45g`: the model and the driver's whole GiB; `a100-80g-mig-3g.40gb` for an instance."""
    memory_bytes: int | None = None
    memory_free_bytes: int | None = None
    compute_capability: str | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    utilization_percent: float | None = None
    """Of an instance never known: no driver measures it."""
    sm_active_percent: float | None = None
    """How much of the chip works, by its profiling counters: SMs with work, warps resident on them, tensor cores,
    memory. Of an instance never known."""
    sm_occupancy_percent: float | None = None
    tensor_active_percent: float | None = None
    dram_active_percent: float | None = None
    bus_id: str | None = None
    """`0000:18:00.0`, as the kernel writes it."""
    numa_node: int | None = None
    adapters: tuple[str, ...] | None = None
    """The network adapters that are nearest to it."""
    pcie: PcieFacts | None = None
    ecc_uncorrected: int | None = None
    """Errors that ECC could not mend, since the driver was loaded."""
    remap_pending: bool | None = None
    """Memory rows wait for a reset to be replaced."""
    mig_profile: str | None = None
    """`3g.40gb`: this is an instance."""
    mig_enabled: bool | None = None
    """The card's mode. An enabled card is told as its instances; by itself only where it has none."""
    mig_pending: bool | None = None
    """The mode that it takes at its next reset."""
    nvlinks: tuple[NvLink, ...] | None = None
    switched: bool | None = None
    """Its NVLinks go to an NVSwitch."""
    domain: DomainFacts | None = None
    holders: tuple[HolderFacts, ...] | None = None
    problem: str | None = None
    """Why nothing can be placed on it."""
    unified: bool | None = None
    """Its memory is the machine's own (GB10, Jetson): the figures are the machine's, and are to be counted once."""


@dataclass(frozen=True, slots=True)
class GpuFigures:
    """What moves of one device, as heartbeats carry it; see `GpuFacts`."""

    index: int
    memory_free_bytes: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    utilization_percent: float | None = None
    sm_active_percent: float | None = None
    sm_occupancy_percent: float | None = None
    tensor_active_percent: float | None = None
    dram_active_percent: float | None = None


@dataclass(frozen=True, slots=True)
class PortFacts:
    """A port of an RDMA adapter."""

    adapter: str
    port: int
    kind: str | None = None
    """infiniband | roce."""
    active: bool | None = None
    rate_gbps: float | None = None
    netdev: str | None = None
    numa_node: int | None = None
    bus_id: str | None = None
    gid_index: int | None = None
    """RoCE: of the version 2 entry that holds an address that is routed."""
    subnet_prefix: str | None = None
    subnet_manager: str | None = None
    """InfiniBand: the GUID of the master that answers; ports on one fabric hear the same one."""
    subnet_manager_lid: int | None = None
    errors: int | None = None
    """Symbol errors, link downs and the like, since the counters were cleared."""


@dataclass(frozen=True, slots=True)
class FabricFacts:
    """A fabric that an operator named in agent.yaml, and the adapters that he said are on it (`mlx5_0`, or
    `mlx5_0:1` for one port)."""

    name: str
    adapters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """An engine as it was found on the node. `problem` says why it cannot be used."""

    name: str
    version: str | None = None
    build: str | None = None
    path: str | None = None
    problem: str | None = None
    installing: str | None = None
    """What its installation does now, in the node's words."""


@dataclass(frozen=True, slots=True)
class RankFacts:
    """An engine that runs here as one rank of several: the cards it has, and what it was told of the others when it was
    started. A store that knows nothing of it finds by these what it is."""

    shard_id: str
    devices: tuple[int, ...] = ()
    gang: Gang | None = None


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
    rdma_ports: tuple[PortFacts, ...] | None = None
    imex: bool | None = None
    """Whether nvidia-imex runs and has a channel: without it an NVLink domain ends at the machine."""
    engines: tuple[EngineFacts, ...] | None = None
    installs: bool | None = None
    """Whether its agent installs engines; False where agent.yaml says `engines: {install: false}`."""
    fabrics: tuple[FabricFacts, ...] | None = None
    weights: tuple[str, ...] | None = None
    """Sources (`agent.wire.shard.Source.url`) whose weights lie whole on this node."""
    ranks: tuple[RankFacts, ...] | None = None
