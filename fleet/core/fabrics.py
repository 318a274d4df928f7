"""Which nodes reach which over what: the cluster's fabrics, from what its nodes say of their ports and cards. Pure.

A fabric is what one replica over several nodes may use. NVLink domains are known by their cluster and clique,
InfiniBand by its subnet manager, whatever operators call it; RoCE only by the name that an operator gave it, plain
Ethernet only by the label `llmgw.io/ethernet`: nothing on a node tells whom it reaches there. Two fabrics under one
name are two, and `Fabrics.findings` says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from agent.wire.facts import DomainFacts, FabricFacts, GpuFacts, PortFacts
from agent.wire.reason import Reason
from agent.wire.shard import Fabric
from fleet.core.world import NodeView

NVLINK, INFINIBAND, ROCE, ETHERNET = KINDS = ("nvlink", "infiniband", "roce", "ethernet")
"""The fastest first: in this order a replica over several nodes is tried."""
ETHERNET_LABEL = "llmgw.io/ethernet"
_JOINED = "Completed"
_NO_CLUSTER = "00000000-0000-0000-0000-000000000000"
"""What a single machine's NVSwitch reports."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """One node's place on one fabric, as its own facts tell it: before the fabrics of all nodes are named."""

    kind: str
    name: str
    """As an operator named it; "": nobody did."""
    identity: str
    """What tells it from others of its kind: cluster and clique, subnet manager. "": only its name does."""
    adapters: tuple[str, ...] = ()
    """`mlx5_0:1`."""
    rate_gbps: float | None = None
    """Of all its ports together."""
    gid_index: int | None = None


@dataclass(frozen=True, slots=True)
class Island:
    """A fabric of the cluster, with the nodes on it in the order of their ids."""

    name: str
    kind: str
    identity: str = ""
    members: Mapping[str, Attachment] = field(default_factory=dict)

    def link(self, node: str) -> Fabric:
        """What a rank on `node` is told."""
        member = self.members[node]
        return Fabric(self.name, self.kind, member.adapters, member.gid_index)


@dataclass(frozen=True, slots=True)
class Fabrics:
    """`off`: why a node is not on a fabric that it could be on; `findings`: what an operator should look at."""

    islands: tuple[Island, ...] = ()
    off: Mapping[str, tuple[Reason, ...]] = field(default_factory=dict)
    findings: tuple[Reason, ...] = ()

    def of_node(self, node: str) -> tuple[Island, ...]:
        return tuple(i for i in self.islands if node in i.members)


def of(nodes: Iterable[NodeView]) -> Fabrics:
    """The cluster's fabrics, the fastest kind first, then by name."""
    off: dict[str, tuple[Reason, ...]] = {}
    found: dict[tuple[str, str, str], dict[str, Attachment]] = defaultdict(dict)
    for node in sorted(nodes, key=lambda n: n.id):
        attached, problems = _attached(node.facts.gpus, node.facts.rdma_ports, node.facts.fabrics, node.facts.imex)
        if problems:
            off[node.id] = tuple(Reason(p.code, f"{node.id}: {p.sentence}", p.command) for p in problems)
        if lan := node.labels.get(ETHERNET_LABEL):
            attached = (*attached, Attachment(ETHERNET, lan, ""))
        for one in attached:
            found[one.kind, one.identity, one.name][node.id] = one
    return _named(_joined(found), off)


_Key = tuple[str, str, str]
"""Kind, identity, name."""


def _joined(found: Mapping[_Key, dict[str, Attachment]]) -> dict[_Key, dict[str, Attachment]]:
    """What has one identity is one fabric, under the first of its names. A node that names a fabric and does not know
    its subnet manager is taken at its word, where only one fabric bears that name."""
    names: dict[tuple[str, str], list[str]] = defaultdict(list)
    for kind, identity, name in sorted(found):
        if identity and name:
            names[kind, identity].append(name)
    joined: dict[_Key, dict[str, Attachment]] = defaultdict(dict)
    for kind, identity, name in sorted(found, key=lambda k: (not k[1], k)):
        key = (kind, identity, next(iter(names[kind, identity]), "")) if identity else (kind, "", name)
        if not identity:
            bearers = [i for (k, i), told in names.items() if k == kind and name in told]
            if len(bearers) == 1:
                key = (kind, bearers[0], names[kind, bearers[0]][0])
        joined[key].update(found[kind, identity, name])
    return joined


def _named(found: Mapping[_Key, dict[str, Attachment]], off: dict[str, tuple[Reason, ...]]) -> Fabrics:
    """Each fabric under a name of its own. One name that several bear is made longer for each of them."""
    asked: dict[str, list[_Key]] = defaultdict(list)
    for key in sorted(found):
        kind, identity, name = key
        asked[name or f"{kind} {identity}"].append(key)
    islands: list[Island] = []
    findings: list[Reason] = []
    for name, keys in asked.items():
        for key in keys:
            kind, identity, _ = key
            whole = name if len(keys) == 1 else f"{name} ({f'{kind} {identity}'.strip()})"
            members = dict(sorted(found[key].items()))
            islands.append(Island(whole, kind, identity, members))
            others = sorted({m.name for m in members.values()} - {"", name})
            if others:
                sentence = f"{whole} is called otherwise on some of its nodes: {', '.join(others)}"
                findings.append(Reason("fabric_names", sentence, f"llmgw fabric show '{whole}'"))
        if len(keys) > 1:
            told = "; ".join(f"{i.name}: {', '.join(i.members)}" for i in islands[-len(keys) :])
            sentence = f"{len(keys)} fabrics that do not reach one another are named {name}: {told}"
            findings.append(Reason("fabric_two", sentence, "llmgw fabric list"))
    islands.sort(key=lambda i: (KINDS.index(i.kind), i.name))
    return Fabrics(tuple(islands), off, tuple(findings))


def _attached(
    gpus: tuple[GpuFacts, ...] | None,
    ports: tuple[PortFacts, ...] | None,
    fabrics: tuple[FabricFacts, ...] | None,
    imex: bool | None,
) -> tuple[tuple[Attachment, ...], tuple[Reason, ...]]:
    """One node's attachments, and what keeps it off others."""
    attached: list[Attachment] = []
    problems: list[Reason] = []
    for found in (*_domain(gpus or (), imex), *_ports(ports or (), fabrics or ())):
        if isinstance(found, Reason):
            problems.append(found)
        else:
            attached.append(found)
    return tuple(attached), tuple(problems)


def _domain(gpus: tuple[GpuFacts, ...], imex: bool | None) -> Iterator[Attachment | Reason]:
    """A node is in a domain with all of its cards or not at all: a rank may get any of them."""
    domains = [g.domain for g in gpus if g.domain is not None and _of_several(g.domain)]
    if not domains:
        return
    out = [g.index for g in gpus if g.domain is None or g.domain.state != _JOINED or not _of_several(g.domain)]
    places = {(d.cluster, d.clique) for d in domains}
    if out:
        told = ", ".join(map(str, out))
        yield Reason("nvlink_out", f"GPUs {told} have not joined its NVLink domain", "llmgw-agent doctor")
    elif len(places) > 1:
        yield Reason("nvlink_split", "its cards are in several NVLink domains", "llmgw-agent doctor")
    elif not imex:
        told = "is not known to run" if imex is None else "does not run, or has no channel"
        sentence = f"its cards are in an NVLink domain, and nvidia-imex {told}"
        yield Reason("imex", sentence, "sudo systemctl enable --now nvidia-imex")
    else:
        [(cluster, clique)] = places
        yield Attachment(NVLINK, "", f"{cluster}/{clique if clique is not None else '-'}")


def _of_several(domain: DomainFacts) -> bool:
    return domain.cluster not in (None, "", _NO_CLUSTER)


def _ports(ports: tuple[PortFacts, ...], fabrics: tuple[FabricFacts, ...]) -> Iterator[Attachment | Reason]:
    """InfiniBand by its subnet managers, RoCE by its names. A named fabric is on the node with all of its adapters, or
    not at all: a rank is told of all of them."""
    unnamed = list(ports)
    for fabric in sorted(fabrics, key=lambda f: not f.adapters):
        mine: list[PortFacts] = []
        problem = None
        for adapter in fabric.adapters or sorted({p.adapter for p in unnamed}):
            here = [p for p in ports if adapter in (p.adapter, _name(p))]
            unnamed = [p for p in unnamed if p not in here]
            usable = [p for p in here if _usable(p)]
            mine += usable
            if not here:
                problem = problem or f"{fabric.name} is said to be on {adapter}, and there is no such adapter"
            elif not usable:
                problem = problem or f"it is off {fabric.name}: {_name(here[0])} {_why(here[0])}"
        if problem is not None or not mine:
            sentence = problem or f"{fabric.name} is named, and there is no RDMA adapter"
            yield Reason("fabric_off", sentence, "llmgw-agent doctor")
            continue
        by: dict[tuple[str, str], list[PortFacts]] = defaultdict(list)
        for port in mine:
            by[port.kind or "", port.subnet_manager or ""].append(port)
        if len(by) > 1:
            told = "; ".join(f"{', '.join(map(_name, found))}: {' '.join(key).strip()}" for key, found in by.items())
            sentence = f"its adapters on {fabric.name} are not on one fabric: {told}"
            yield Reason("fabric_mixed", sentence, "llmgw-agent doctor")
            continue
        [((kind, identity), found)] = by.items()
        yield _attachment(kind, fabric.name, identity, found)
    managed: dict[str, list[PortFacts]] = defaultdict(list)
    for port in unnamed:
        if port.kind == INFINIBAND and _usable(port) and port.subnet_manager:
            managed[port.subnet_manager].append(port)
    for identity, found in managed.items():
        yield _attachment(INFINIBAND, "", identity, found)


def _attachment(kind: str, name: str, identity: str, ports: list[PortFacts]) -> Attachment:
    rates = [p.rate_gbps for p in ports if p.rate_gbps is not None]
    gid = next((p.gid_index for p in ports), None) if kind == ROCE else None
    return Attachment(
        kind, name, identity, tuple(map(_name, ports)), sum(rates) if len(rates) == len(ports) else None, gid
    )


def _usable(port: PortFacts) -> bool:
    return port.active is True and (port.kind == INFINIBAND or (port.kind == ROCE and port.gid_index is not None))


def _why(port: PortFacts) -> str:
    if port.active is None:
        return "has not said whether it is active"
    if not port.active:
        return "is down"
    return "has no RoCE v2 address that is routed" if port.kind == ROCE else "is of an unknown kind"


def _name(port: PortFacts) -> str:
    return f"{port.adapter}:{port.port}"
