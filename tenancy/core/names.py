"""How a level of the tree, a key or a person may be named, and how a place in the tree is written. Pure."""

from __future__ import annotations

import unicodedata

from agent.wire.reason import Reason

LONGEST = 80
# Control, format (bidirectional overrides among them), private and unassigned characters, line ends.
_HIDDEN = {"Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp"}


def clean(name: str) -> str:
    """`name` without blanks around it, in the one Unicode form that is compared."""
    return unicodedata.normalize("NFC", name.strip())


def problem(what: str, name: str, *, separator: bool = True) -> Reason | None:
    """Why `name` cannot name `what` (`a team`); with `separator` the name is part of a path and has no slash."""
    if not name:
        return Reason("bad_name", f"{what} needs a name")
    if len(name) > LONGEST:
        return Reason("bad_name", f"the name of {what} has {LONGEST} characters at most, and this one has {len(name)}")
    if any(unicodedata.category(c) in _HIDDEN for c in name):
        return Reason("bad_name", f"the name of {what} has a character that cannot be seen: {name!r}")
    if separator and "/" in name:
        return Reason("bad_name", f"the name of {what} cannot have a slash, and this one is {name!r}")
    return None
