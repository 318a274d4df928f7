"""The newest order that was taken up, on disk: what the next agent begins with before the control plane is reached.

Mode 0600, as it holds the engines' keys. It starts engines and never stops one; whatever the control plane says
takes its place, and a node that is removed or whose certificate is revoked drops it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from agent.core.converge import Taken
from agent.node.home import Home, write_atomically
from agent.wire.messages import Desired


@dataclass(frozen=True, slots=True)
class Kept:
    """`address`: where its engines listen."""

    order: Desired
    address: str


def write(home: Home, kept: Kept) -> None:
    """Raises OSError."""
    write_atomically(home.order, msgspec.json.encode(kept))


def read(home: Home, taken: tuple[Taken, ...]) -> Kept | None:
    """What was kept, as an order that stops nothing; None where there is none, or it is not the newest one taken."""
    try:
        found = msgspec.json.decode(home.order.read_bytes(), type=Kept)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    order = found.order
    if not taken or taken[-1] != Taken(order.store_id, order.term, order.generation):
        return None
    return replace(found, order=replace(order, synced=False))


def drop(home: Home) -> None:
    home.order.unlink(missing_ok=True)
