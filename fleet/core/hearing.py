"""Whether a node is silent, or merely nobody has written down that it spoke. Pure. Seconds are Unix seconds.

What a link hears is written a moment later, and on a busy machine much later. So a link says with its lease until when
all that it heard is in the rows, and a node is held against that moment: while its link is late, it is not lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

LEASE = "fleet.link"
"""What each link process holds while it is up, with its host's name and port after a colon."""
LEASE_S = 15.0
"""A lease ends so long after the moment until which all that its link heard is in the rows."""


@dataclass(frozen=True, slots=True)
class Ears:
    """The links, as their leases tell of them."""

    since: float | None = None
    """When the one began that has been up longest; None: none is up, and silence means nothing."""
    told: Mapping[str, float] = field(default_factory=dict)
    """By link that is up: until when all that it heard is in the rows."""
    ended: Mapping[str, float] = field(default_factory=dict)
    """By link that is not: when it was given up. Its nodes have their time to come to another."""

    def lost(self, *, link: str, last_seen: float | None, lost_s: float, now: float) -> bool:
        """Whether a node that was connected to `link` is given up. Time in which nobody could have heard it, and time
        of which nobody has told yet, do not count."""
        if self.since is None or last_seen is None:
            return False
        silent_since = max(last_seen, self.since, self.ended.get(link, 0.0))
        return min(now, self.told.get(link, now)) - silent_since > lost_s
