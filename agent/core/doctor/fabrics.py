"""What is wrong with a node's RDMA ports and what they need. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from agent.core import rdma
from agent.core.doctor.finding import Finding, Seen, ok, problem, warning
from agent.wire.facts import NodeFacts, PortFacts

_CHECK = "rdma"
_PEER = ("nvidia_peermem", "nv_peer_mem")
_LEAST_PINNED = 2**30


def findings(seen: Seen) -> Iterator[Finding]:
    ports = seen.facts.rdma_ports
    yield from _named(seen.facts)
    if not ports:
        return
    for port in ports:
        yield from _port(port)
    if not any(port.active for port in ports):
        return
    if seen.modules is not None and seen.facts.gpus and not seen.modules & set(_PEER):
        yield warning(
            _CHECK,
            "no_peermem",
            "nvidia_peermem is not loaded: between machines the cards' data takes the way through main memory",
            "sudo modprobe nvidia_peermem",
        )
    if seen.memlock_bytes is not None and 0 <= seen.memlock_bytes < _LEAST_PINNED:
        yield problem(
            _CHECK,
            "memlock",
            f"engines may pin {seen.memlock_bytes // 1024} KiB of memory (memlock), which RDMA cannot do with",
            "LimitMEMLOCK=infinity in the agent's unit",
        )


def _named(facts: NodeFacts) -> Iterator[Finding]:
    """What agent.yaml says of fabrics, against what is there."""
    ports = facts.rdma_ports or ()
    there = {name for port in ports for name in (port.adapter, f"{port.adapter}:{port.port}")}
    for fabric in facts.fabrics or ():
        missing = [a for a in fabric.adapters if a not in there]
        if missing:
            has = ", ".join(sorted({p.adapter for p in ports})) or "none"
            said = (
                f"agent.yaml puts {', '.join(missing)} on the fabric {fabric.name}, and this node has no such adapter"
            )
            yield problem(_CHECK, "fabric_without_adapter", f"{said}: it has {has}")
        kinds = {p.kind for p in ports if p.kind and {p.adapter, f"{p.adapter}:{p.port}"} & set(fabric.adapters)}
        if len(kinds) > 1:
            said = (
                f"the fabric {fabric.name} has InfiniBand and RoCE ports in agent.yaml, which cannot reach one another"
            )
            yield problem(_CHECK, "fabric_of_two_kinds", said)


def _port(port: PortFacts) -> Iterator[Finding]:
    name = f"{port.adapter} port {port.port}"
    if port.active is None:
        return
    if not port.active:
        cause = "; has a subnet manager seen it?" if port.kind == rdma.INFINIBAND else ""
        yield warning(_CHECK, "port_down", f"{name} is not active{cause}", "ibstat" if port.kind != rdma.ROCE else "")
        return
    if port.kind == rdma.INFINIBAND and not port.subnet_manager_lid and port.subnet_manager is None:
        yield problem(_CHECK, "no_subnet_manager", f"{name} knows no subnet manager: nothing is routed on its fabric")
        return
    if port.kind == rdma.ROCE and port.gid_index is None:
        yield problem(
            _CHECK,
            "no_routed_gid",
            f"{name} has no RoCE v2 entry with an address: give {port.netdev or 'its interface'} an IP address",
        )
        return
    if port.errors:
        yield warning(_CHECK, "port_errors", f"{name} has counted {port.errors} errors: look at its cable", "perfquery")
    rate = f"{port.rate_gbps:g} Gb/s" if port.rate_gbps is not None else "an unknown rate"
    more = f", GID index {port.gid_index}" if port.gid_index is not None else ""
    yield ok(_CHECK, f"{name}: {port.kind or 'unknown kind'}, {rate}{more}")
