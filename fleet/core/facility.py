"""Where nodes stand, and what that forbids: held places, power caps; and which copies of a model share a rack. Pure.

Locations are labels: `llmgw.io/rack`, `row`, `room`, `site`, and `pdu` (several: `a,b`). A node without one is a rack
of its own. What a rack may draw is reckoned from the cards: one that a replica has may draw its limit, another what it
drew when it was last measured, and each node `node_w` besides. A node on several PDUs draws evenly from them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from agent.wire.facts import INSTANCES, GpuFacts
from agent.wire.reason import Reason
from llmgw.cluster.core.sections import FacilitySettings, PlaceOptions

PREFIX = "llmgw.io/"
KINDS = ("rack", "row", "room", "site", "pdu")
"""What can be held and capped."""
_APART = ("rack", "pdu")
"""What copies of one model are kept apart by."""
Place = tuple[str, str]
"""`("rack", "r12-07")`."""


@dataclass(frozen=True, slots=True)
class Location:
    """ "" and (): nobody said."""

    rack: str = ""
    row: str = ""
    room: str = ""
    site: str = ""
    pdus: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[Place, ...]:
        """What of it can be held and capped."""
        named = (("rack", self.rack), ("row", self.row), ("room", self.room), ("site", self.site))
        return (*(p for p in named if p[1]), *(("pdu", p) for p in self.pdus))

    def __str__(self) -> str:
        """From the largest to the smallest: `sto1/hall-b/12/r12-07`."""
        return "/".join(filter(None, (self.site, self.room, self.row, self.rack)))

    def within(self, kind: str, name: str) -> bool:
        return name in self.pdus if kind == "pdu" else getattr(self, kind, None) == name


def location(labels: Mapping[str, str]) -> Location:
    said = {name: labels.get(PREFIX + name, "").strip() for name in ("rack", "row", "room", "site", "pdu")}
    pdus = tuple(sorted({p.strip() for p in said.pop("pdu").split(",")} - {""}))
    return Location(**said, pdus=pdus)


def options(settings: FacilitySettings, place: Place) -> PlaceOptions:
    """What was said of it."""
    kind, name = place
    return named(settings, kind).get(name, PlaceOptions())


def named(settings: FacilitySettings, kind: str) -> Mapping[str, PlaceOptions]:
    """All of a kind of which something was said."""
    match kind:
        case "rack":
            return settings.racks
        case "row":
            return settings.rows
        case "room":
            return settings.rooms
        case "site":
            return settings.sites
        case _:
            return settings.pdus


def may_draw_w(cards: Iterable[GpuFacts], taken: Collection[int]) -> float:
    """What a node's cards may come to draw: those in `taken` their limits. MIG instances are one card."""
    by_card: dict[int, float] = defaultdict(float)
    for card in cards:
        number = card.index if card.index < INSTANCES else (card.index - INSTANCES) // 100
        measured = card.power_w or 0.0
        watts = max(card.power_limit_w or measured, measured) if card.index in taken else measured
        by_card[number] = max(by_card[number], watts)
    return sum(by_card.values())


@dataclass(slots=True)
class Ledger:
    """The places while a plan is being made."""

    settings: FacilitySettings
    at: dict[str, Location] = field(default_factory=dict)
    """By node."""
    watts: dict[Place, float] = field(default_factory=dict)
    copies: dict[tuple[Place, str], int] = field(default_factory=dict)
    """Shards of a model, by where."""
    nodes: dict[str, float] = field(default_factory=dict)
    """What each node may draw."""

    def put(self, node: str, where: Location, watts: float) -> None:
        """A node with what it may draw by now."""
        self.at[node] = where
        self.nodes[node] = watts
        self._add(where, watts)

    def take(self, node: str, model: str, watts: float, shards: int = 1) -> None:
        """`watts`: what the node may draw from now on."""
        where = self.at.get(node)
        if where is None or not where.places:
            return
        for place in where.places:
            self.copies[place, model] = self.copies.get((place, model), 0) + shards
        self._add(where, watts - self.nodes[node])
        self.nodes[node] = watts

    def copy(self) -> Ledger:
        return Ledger(self.settings, self.at, dict(self.watts), dict(self.copies), dict(self.nodes))

    def shared(self, node: str, model: str) -> int | None:
        """Shards of the model in the node's rack, or on one of its PDUs; None: it has no location."""
        where = self.at.get(node)
        if where is None or not (where.rack or where.pdus):
            return None
        apart = [p for p in where.places if p[0] in _APART]
        return max(self.copies.get((p, model), 0) for p in apart)

    def held(self, node: str) -> Reason | None:
        for place in self.at.get(node, Location()).places:
            said = options(self.settings, place)
            if said.held:
                note = f": {said.note}" if said.note else ""
                name = f"{place[0]} {place[1]}"
                return Reason(
                    "place_held", f"{node} is in {name}, which is held{note}", f"llmgw facility release {name}"
                )
        return None

    def power(self, node: str, more: float) -> Reason | None:
        """Whether `more` watts on the node would pass a cap."""
        where = self.at.get(node, Location())
        for place in where.places:
            cap = options(self.settings, place).power_cap_w
            if cap is None:
                continue
            adds = more / len(where.pdus) if place[0] == "pdu" else more
            then = self.watts.get(place, 0.0) + adds
            if then > cap:
                name = f"{place[0]} {place[1]}"
                return Reason(
                    "power_cap",
                    f"{name} of {node} may draw {kw(cap)}, and with {kw(adds)} more could come to {kw(then)}",
                    f"llmgw facility cap {name} WATTS",
                )
        return None

    def capped(self, node: str) -> bool:
        places = self.at.get(node, Location()).places
        return any(options(self.settings, p).power_cap_w is not None for p in places)

    def _add(self, where: Location, watts: float) -> None:
        for place in where.places:
            share = watts / len(where.pdus) if place[0] == "pdu" else watts
            self.watts[place] = self.watts.get(place, 0.0) + share


def kw(watts: float) -> str:
    return f"{watts / 1000:.1f} kW" if watts >= 1000 else f"{watts:.0f} W"
