"""Whether engines that no row knows are just what their model wants: then rows are made for them. Pure.

What an engine was started with is told by its fingerprint alone. Which cards it has, and where the ranks of several
meet, is found by trying: no others give that fingerprint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, islice

from agent.wire.shard import Gang, ShardSpec, ShardState, printed, told
from catalog.core.definition import ProfileDefinition
from fleet.core import cards
from fleet.core.fabrics import Fabrics, Island
from fleet.core.plan import Adopt, Seat
from fleet.core.world import NodeView, ShardView, StrayView, WantedModel

_ALIVE = frozenset({ShardState.STARTING, ShardState.LOADING, ShardState.READY})
_MOST_CARDS, _NEAR_PORTS = 5000, 64
"""How much is tried: sets of cards of a node, and ports on either side of the leader's."""

_Found = tuple[tuple[int, ...], Gang | None]
_KNOWN: dict[tuple[str, str, tuple[tuple[int, ...], ...], tuple[Gang | None, ...]], _Found | None] = {}
"""What was found of a fingerprint: a stray that fits nothing is looked at in each pass."""
_MOST_KNOWN = 20_000


def by_replica(strays: Iterable[StrayView]) -> dict[str, list[StrayView]]:
    """Those that may be adopted, by the replica that they say they are of, the leader first."""
    found: dict[str, list[StrayView]] = {}
    for stray in sorted(strays, key=lambda s: s.shard_id):
        if not stray.dismissed:
            found.setdefault(stray.replica_id, []).append(stray)
    return found


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
    for profile in wanted.profiles:
        if profile.run.nodes != len(ranks):
            continue
        islands: Iterable[Island | None] = (None,)
        if len(ranks) > 1:
            islands = [i for i in fabrics().islands if all(s.node in i.members for s in ranks)]
        for island in islands:
            seats = _seats(ranks, wanted, profile, nodes, island)
            if seats is not None:
                return Adopt(
                    replica=first.replica_id,
                    model=wanted.name,
                    profile=profile.run.name,
                    run=profile.run,
                    source=wanted.source(profile),
                    seats=tuple(seat for seat, _ in seats),
                    incarnation=first.incarnation,
                    states=tuple(s.state for s in ranks),
                    fabric=island.name if island is not None else "",
                    meeting_port=seats[0][1].port if seats[0][1] is not None else None,
                )
    return None


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


def _seats(
    ranks: Sequence[StrayView],
    wanted: WantedModel,
    profile: ProfileDefinition,
    nodes: Mapping[str, NodeView],
    island: Island | None,
) -> list[tuple[Seat, Gang | None]] | None:
    """Every rank's, with what it was told of the others; None: one of them runs otherwise."""
    run = profile.run
    addresses = tuple(nodes[s.node].facts.address or "" for s in ranks)
    meeting: int | None = None
    found: list[tuple[Seat, Gang | None]] = []
    for rank, stray in enumerate(ranks):
        assert stray.port is not None, "adopt has looked"
        link = island.link(stray.node) if island is not None else None
        gangs: tuple[Gang | None, ...] = (None,)
        if link is not None:
            ports = _near(stray.port) if meeting is None else (meeting,)
            gangs = tuple(Gang(addresses, port, link) for port in ports)
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
        known = _started_with(stray.fingerprint or "", spec, tuple(_cards(nodes[stray.node], profile)), gangs)
        if known is None:
            return None
        devices, gang = known
        meeting = gang.port if gang is not None else None
        seat = Seat(stray.node, stray.port, devices, run.cpu_cores or 0, run.memory_bytes or 0)
        if gang is not None:
            seat = replace(seat, address=addresses[rank], link=gang.fabric)
        found.append((seat, gang))
    return found


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
