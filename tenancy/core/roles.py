"""What a role at one level of the tree lets a person do below it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """`OWNER` manages the level's keys and members; `MEMBER` uses it with keys of his own."""

    OWNER = "owner"
    MEMBER = "member"


@dataclass(frozen=True, slots=True)
class Place:
    """A level by the ids of it and of what is above it; empty below the level."""

    organisation: str
    team: str = ""
    project: str = ""

    def within(self, level: Place) -> bool:
        """Whether this is `level` or below it."""
        return (
            self.organisation == level.organisation
            and level.team in ("", self.team)
            and level.project in ("", self.project)
        )

    @property
    def above(self) -> Place | None:
        """The level that this one is in; None for an organisation."""
        if self.project:
            return Place(self.organisation, self.team)
        return Place(self.organisation) if self.team else None


@dataclass(frozen=True, slots=True)
class Held:
    """A role that a person holds at a level."""

    at: Place
    role: Role


def role_at(held: Iterable[Held], place: Place) -> Role | None:
    """The strongest role that the memberships give at `place`; None: not a member."""
    roles = {h.role for h in held if place.within(h.at)}
    if Role.OWNER in roles:
        return Role.OWNER
    return Role.MEMBER if roles else None


def may_limit(held: Iterable[Held], place: Place) -> bool:
    """Whether somebody who is no administrator may set what `place` allows: limits bind from above, so that nobody
    lifts his own. An organisation's are an administrator's."""
    above = place.above
    return above is not None and role_at(held, above) is Role.OWNER
