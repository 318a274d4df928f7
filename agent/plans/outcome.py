"""What asking for an engine's plans can come to."""

from __future__ import annotations

from dataclasses import dataclass

from agent.plans.steps import Plan
from agent.wire.reason import Reason

AUTO, NONE = "auto", "none"
"""Builds that every engine has: what the hardware runs, and none at all."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The best first: one that cannot run on the machine is passed over for the next."""

    plans: tuple[Plan, ...]


@dataclass(frozen=True, slots=True)
class Cannot:
    """Wanted, and this node can run no build of it."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Nothing:
    """Not wanted here, or not for such a node: there is nothing to say."""


Outcome = Candidates | Cannot | Nothing
