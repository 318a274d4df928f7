"""Why something is so: each app registers who can tell of its nouns; the command, the API and the pages ask here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agent.wire.reason import Reason
from llmgw.cluster.errors import Invalid, NotFound

Tell = Callable[..., tuple[Reason, ...]]
"""tell(ref, model=None) → the answer first, then its reasons; raises `NotFound` where `ref` is none of these."""


@dataclass(frozen=True, slots=True)
class Teller:
    """`begins`: what every id of this noun begins with; empty where a name may be anything."""

    tell: Tell
    begins: str = ""


TELLERS: dict[str, Teller] = {}
"""By noun, in the order in which they are asked about a name that may be anything."""


def register(noun: str, tell: Tell, begins: str = "") -> None:
    TELLERS[noun] = Teller(tell, begins)


def why(ref: str, noun: str | None = None, model: str | None = None) -> dict[str, Any]:
    """{"noun", "ref", "code", "sentence", "command", "reasons": […]}: the answer, and what it rests on. Raises
    `NotFound`, `Invalid`."""
    if noun is not None and noun not in TELLERS:
        raise Invalid("unknown_noun", f"why answers for {', '.join(sorted(TELLERS))}, not for {noun}")
    missing: NotFound | None = None
    for name in [noun] if noun is not None else _candidates(ref):
        try:
            first, *others = TELLERS[name].tell(ref, model=model)
        except NotFound as e:
            if noun is not None or TELLERS[name].begins:
                missing = e
            continue
        return {"noun": name, "ref": ref, **_row(first), "reasons": [_row(r) for r in others]}
    raise missing or NotFound(
        "nothing_by_that_name",
        f"there is no request, key, model, replica or node {ref[:80]}",
        "llmgw model list",
    )


def _candidates(ref: str) -> list[str]:
    """Those whose ids begin so, before those whose may be anything."""
    fitting = [name for name, teller in TELLERS.items() if teller.begins and ref.startswith(teller.begins)]
    return fitting + [name for name, teller in TELLERS.items() if name not in fitting and not teller.begins]


def _row(reason: Reason) -> dict[str, str]:
    return {"code": reason.code, "sentence": reason.sentence, "command": reason.command}
