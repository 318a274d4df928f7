"""Whether engines that no row knows are just what their model wants: then rows are made for them. Pure.

What an engine was started with is told by its fingerprint. Which cards it has is found by trying: no others give that
fingerprint. Of one rank of several its agent tells the cards, and where and how the ranks meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, islice

from agent.wire.facts import RankFacts
from agent.wire.reason import Reason
from agent.wire.shard import Fabric, Gang, ShardSpec, ShardState, printed, told
from catalog.core.definition import ProfileDefinition
from fleet.core import cards
from fleet.core.fabrics import Fabrics
from fleet.core.plan import Adopt, Seat
from fleet.core.replica import State
from fleet.core.world import NodeView, ShardView, StrayView, WantedModel, World

_ALIVE = frozenset({ShardState.STARTING, ShardState.LOADING, ShardState.READY})
_MOST_CARDS, _NEAR_PORTS = 5000, 64
"""How much is tried: sets of cards of a node, and ports on either side of the leader's."""

_Found = tuple[tuple[int, ...], Gang | None]
_KNOWN: dict[tuple[str, str, tuple[tuple[int, ...], ...], tuple[Gang | None, ...]], _Found | None] = {}
"""What was found of a fingerprint: a stray that fits nothing is looked at in each pass."""
_MOST_KNOWN = 20_000


@dataclass(frozen=True, slots=True)
class Adoption:
    """What is taken over now; by model, of each replica that a rank which may yet be reported would make whole: why
    nothing is started in its stead."""

    steps: tuple[Adopt, ...]
    awaited: Mapping[str, list[Reason]]


def look(
    world: World,
    models: Mapping[str, WantedModel],
    missing: Callable[[str], int],
    fabrics: Callable[[], Fabrics],
    now: float,
) -> Adoption:
    """Every stray, replica by replica. `missing`: how many more a model wants than are under way."""
    steps: list[Adopt] = []
    waits: dict[str, list[Reason]] = {}
    known, nodes = {r.id for r in world.replicas}, {n.id: n for n in world.nodes}
    claimed = {(s.node, d) for r in world.replicas if r.state is not State.PARKED for s in r.shards for d in s.devices}
    for replica, ranks in by_replica(world.strays).items():
        wanted = models.get(ranks[0].model)
        if wanted is None or replica in known:
            continue
        waiting = waits.get(wanted.name, [])
        if missing(wanted.name) <= len(waiting) + sum(s.model == wanted.name for s in steps):
            continue
        step = adopt(ranks, wanted, nodes, fabrics)
        if step is None:  # it runs otherwise than is wanted, or there is more of it
            reason = awaited(ranks, wanted, nodes, world.settings.sync_grace_s, now)
            if reason is not None:
                waits[wanted.name] = [*waiting, reason]
            continue
        taken = {(s.node, d) for s in step.seats for d in s.devices}
        if not claimed & taken:
            claimed |= taken
            steps.append(step)
    return Adoption(tuple(steps), waits)


def adopt(
    ranks: Sequence[StrayView],
    wanted: WantedModel,
    nodes: Mapping[str, NodeView],
    fabrics: Callable[[], Fabrics],
) -> Adopt | None:
    """The step that takes the ranks of one replica over: only live engines that would be started the same way again
    today, and only all of them."""
    first = ranks[0]
    names = [s.shard_id for s in ranks] == [f"{first.replica_id}.{n}" for n in range(len(ranks))]
    if not names or len({(s.model, s.incarnation) for s in ranks}) > 1 or len({s.node for s in ranks}) < len(ranks):
        return None
    if any(s.state not in _ALIVE or s.port is None or s.node not in nodes for s in ranks):
        return None
    told = tuple(_told(s, nodes[s.node]) for s in ranks)
    for profile in wanted.profiles:
        if profile.run.nodes != len(ranks):
            continue
        for meeting in _meetings(ranks, told, nodes, fabrics):
            seats = _seats(ranks, wanted, profile, nodes, meeting)
            if seats is not None:
                leads = seats[0][1]
                return Adopt(
                    replica=first.replica_id,
                    model=wanted.name,
                    profile=profile.run.name,
                    run=profile.run,
                    source=wanted.source(profile),
                    seats=tuple(seat for seat, _ in seats),
                    incarnation=first.incarnation,
                    states=tuple(s.state for s in ranks),
                    fabric=leads.fabric.name if leads is not None and leads.fabric is not None else "",
                    meeting_port=leads.port if leads is not None else None,
                )
    return None


def awaited(
    ranks: Sequence[StrayView], wanted: WantedModel, nodes: Mapping[str, NodeView], grace_s: float, now: float
) -> Reason | None:
    """Why nothing is started yet in the stead of engines of which some ranks were not reported: their nodes may yet
    come. None: there is nothing to wait for, or the time for it is over."""
    told = [t for s in ranks if s.node in nodes and (t := _told(s, nodes[s.node])) is not None and t.gang is not None]
    sizes = {len(t.gang.addresses) for t in told if t.gang is not None}
    known = {s.shard_id for s in ranks}
    for profile in wanted.profiles:
        size, first = profile.run.nodes, ranks[0]
        missing = [n for n in range(size) if f"{first.replica_id}.{n}" not in known]
        if not missing or len(missing) + len(ranks) != size or (sizes and sizes != {size}):
            continue
        if any(s.state not in _ALIVE or s.port is None for s in ranks) or now >= max(s.seen for s in ranks) + grace_s:
            return None
        addresses = told[0].gang.addresses if told and told[0].gang is not None else ("",) * size
        if any(
            n.reported and n.connected and n.facts.address in {addresses[m] for m in missing} for n in nodes.values()
        ):
            return None  # it has told everything, and does not have it
        said = [f"rank {n}{f' at {addresses[n]}' if addresses[n] else ''}" for n in missing]
        here = " and ".join(f"rank {s.shard_id.rpartition('.')[2]} of {s.replica_id} runs on {s.node}" for s in ranks)
        sentence = (
            f"{here}; {' and '.join(said)} may be reported yet: nothing is started in its stead for {grace_s:g} s"
        )
        return Reason("rank_awaited", sentence, "llmgw node list")
    return None


def by_replica(strays: Iterable[StrayView]) -> dict[str, list[StrayView]]:
    """Those that may be adopted, by the replica that they say they are of, the leader first."""
    found: dict[str, list[StrayView]] = {}
    for stray in sorted(strays, key=lambda s: s.shard_id):
        if not stray.dismissed:
            found.setdefault(stray.replica_id, []).append(stray)
    return found


def shards(step: Adopt) -> tuple[ShardView, ...]:
    """What the adopted engines take of their nodes."""
    return tuple(
        ShardView(
            rank,
            seat.node,
            seat.port,
            seat.devices,
            seat.cpu_cores,
            seat.memory_bytes,
            observed=state,
            address=seat.address,
            link=seat.link,
        )
        for rank, (seat, state) in enumerate(zip(step.seats, step.states, strict=True))
    )


_Meeting = Callable[[int, int], tuple[Gang | None, ...]]
"""What the rank may have been told of the others, by its number and its port."""


def _meetings(
    ranks: Sequence[StrayView],
    told: Sequence[RankFacts | None],
    nodes: Mapping[str, NodeView],
    fabrics: Callable[[], Fabrics],
) -> Iterator[_Meeting]:
    """How they may have met: as their agents tell, also where a node has another address or adapter by now. Of agents
    that do not tell it is looked for, on each fabric and at the ports beside the leader's."""
    if len(ranks) == 1:
        yield lambda rank, port: (None,)
        return
    gangs = [t.gang for t in told if t is not None and t.gang is not None]
    if len(gangs) == len(ranks):
        if len({(g.addresses, g.port) for g in gangs}) == 1:
            yield lambda rank, port: (gangs[rank],)
        return
    addresses = tuple(nodes[s.node].facts.address or "" for s in ranks)
    ports = _near(ranks[0].port or 0)
    for island in fabrics().islands:
        if all(s.node in island.members for s in ranks):
            links = [island.link(s.node) for s in ranks]
            yield partial(_looked_for, addresses, ports, links)


def _looked_for(
    addresses: tuple[str, ...], ports: Sequence[int], links: Sequence[Fabric], rank: int, port: int
) -> tuple[Gang | None, ...]:
    """The leader may have met the others at any of `ports`; they met it where it was found."""
    return tuple(Gang(addresses, p, links[rank]) for p in ([port] if rank else ports))


def _seats(
    ranks: Sequence[StrayView],
    wanted: WantedModel,
    profile: ProfileDefinition,
    nodes: Mapping[str, NodeView],
    meeting: _Meeting,
) -> list[tuple[Seat, Gang | None]] | None:
    """Every rank's, with what it was told of the others; None: one of them runs otherwise."""
    run = profile.run
    met = 0
    found: list[tuple[Seat, Gang | None]] = []
    for rank, stray in enumerate(ranks):
        assert stray.port is not None, "adopt has looked"
        gangs = meeting(rank, met)
        spec = ShardSpec(
            shard_id=stray.shard_id,
            replica_id=stray.replica_id,
            model=wanted.name,
            profile=run,
            source=wanted.source(profile),
            port=stray.port,
            key=stray.key,
            rank=rank,
            world_size=len(ranks),
            gang=gangs[0],
        )
        node = nodes[stray.node]
        told = _told(stray, node)
        sets = (told.devices,) if told is not None else tuple(_cards(node, profile))
        known = _started_with(stray.fingerprint or "", spec, sets, gangs)
        if known is None:
            return None
        devices, gang = known
        seat = Seat(stray.node, stray.port, devices, run.cpu_cores or 0, run.memory_bytes or 0)
        if gang is not None:
            met = gang.port
            seat = replace(seat, address=gang.addresses[rank], link=gang.fabric)
        found.append((seat, gang))
    return found


def _told(stray: StrayView, node: NodeView) -> RankFacts | None:
    return next((r for r in node.facts.ranks or () if r.shard_id == stray.shard_id), None)


def _started_with(
    fingerprint: str, spec: ShardSpec, sets: tuple[tuple[int, ...], ...], gangs: tuple[Gang | None, ...]
) -> _Found | None:
    """The cards and the meeting that give this fingerprint, of those that may be."""
    key = (fingerprint, spec.fingerprint, sets, gangs)
    if key not in _KNOWN:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = next(_tried(fingerprint, spec, sets, gangs), None)
    return _KNOWN[key]


def _tried(
    fingerprint: str, spec: ShardSpec, sets: tuple[tuple[int, ...], ...], gangs: tuple[Gang | None, ...]
) -> Iterator[_Found]:
    for gang in gangs:
        plain = told(replace(spec, gang=gang, incarnation=0))
        for devices in sets:
            if devices:
                plain["devices"] = devices
            if printed(plain) == fingerprint:
                yield devices, gang


def _cards(node: NodeView, profile: ProfileDefinition) -> Iterator[tuple[int, ...]]:
    """Every set of the node's cards that the profile may have been given."""
    wish = cards.wish(profile.run)
    kinds: dict[str, list[int]] = {}
    for card in cards.of(node.facts) or ():
        if wish.asks(card):
            kinds.setdefault(cards.kind(card), []).append(card.index)
    if not wish.count:
        yield ()
    else:
        every = (c for indices in kinds.values() for c in combinations(indices, wish.count))
        yield from islice(every, _MOST_CARDS)


def _near(port: int) -> list[int]:
    """Where the ranks of one whose leader answers here may meet, the likeliest first."""
    return [p for far in range(1, _NEAR_PORTS + 1) for p in (port + far, port - far)]
