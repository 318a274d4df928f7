"""What a level or a key may say beside its limits: where it may run, what may be kept, who goes first. Pure.

A kind is organisation, team, project or key. `cleaned` gives values as rows keep them; None means that a level says
nothing, where it may say nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agent.wire.reason import Reason
from llmgw.zones import zone
from tenancy.core.tree import clean_allow

BANDS = ("interactive", "normal", "batch")
LONGEST_KEY_DAYS = 36_500
MOST_WEIGHT = 1000.0
LONGEST_REUSE_S = 365 * 86_400
LONGEST_KEEP_HOURS = 24 * 365
LEAST_SIMILAR = 0.5
_TOOL = re.compile(r"[A-Za-z0-9_*?\[\]!-][A-Za-z0-9_.*?\[\]!/-]{0,119}")

Checked = Callable[[Any], Any]
"""The value as it is kept, or a `Reason`."""


def cleaned(kind: str, asked: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Reason, ...]]:
    """The terms that may stand, and everything that is wrong with the others."""
    said: dict[str, Any] = {}
    problems: list[Reason] = []
    for name, value in asked.items():
        check = TERMS[kind].get(name)
        if check is None:
            problems.append(Reason("bad_term", f"{_A[kind]} has no {name}; it has {', '.join(TERMS[kind])}"))
            continue
        found = check(value)
        if isinstance(found, Reason):
            problems.append(found)
        else:
            said[name] = found
    return said, tuple(problems)


def reuse(ttl_s: float, any: bool = False, similar: float | None = None) -> dict[str, Any] | Reason:
    """An answer cache as a project's row keeps it."""
    if not _number(ttl_s) or not 1 <= ttl_s <= LONGEST_REUSE_S:
        return Reason("bad_reuse", f"answers are given again for 1 second up to 365 days, and not for {ttl_s!r} s")
    if similar is not None and (not _number(similar) or not LEAST_SIMILAR <= similar <= 1):
        return Reason(
            "bad_similar", f"questions count as the same from a similarity of {LEAST_SIMILAR} to 1, and not {similar!r}"
        )
    return {"ttl_s": float(ttl_s), "any": bool(any), "similar": None if similar is None else float(similar)}


def keep(hours: float, sample: float = 1.0) -> dict[str, Any] | Reason:
    """Keeping of requests as a project's row keeps it."""
    if not _number(hours) or not 0 < hours <= LONGEST_KEEP_HOURS:
        return Reason("bad_keep", f"requests are kept for up to {LONGEST_KEEP_HOURS} hours, and not for {hours!r}")
    if not _number(sample) or not 0 < sample <= 1:
        return Reason("bad_sample", f"the share of requests that is kept is above 0 and at most 1, and not {sample!r}")
    return {"hours": float(hours), "sample": float(sample)}


def _flag(what: str) -> Checked:
    def check(value: Any) -> bool | Reason:
        return value if isinstance(value, bool) else Reason("bad_term", f"{what} is true or false, and not {value!r}")

    return check


def _days(value: Any) -> int | Reason | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LONGEST_KEY_DAYS):
        return value
    return Reason("bad_key_life", f"a key's longest life is 1 to {LONGEST_KEY_DAYS} days, and not {value!r}")


def _allow(value: Any) -> list[str] | Reason | None:
    if value is not None and (isinstance(value, str) or not isinstance(value, Iterable)):
        return Reason("bad_allow", f"an allowlist is a list of models' names, and not {value!r}")
    return clean_allow(value)


def _tools(value: Any) -> list[str] | Reason | None:
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Iterable):
        return Reason("bad_tool", f"tools are a list of patterns like jira.* or db.query, and not {value!r}")
    patterns = list(dict.fromkeys(str(pattern).strip() for pattern in value))
    wrong = [pattern for pattern in patterns if not _TOOL.fullmatch(pattern)]
    if wrong:
        return Reason("bad_tool", f"a tool is named by a pattern like jira.* or db.query, and not {wrong[0][:80]!r}")
    return patterns


def _weight(value: Any) -> float | Reason:
    if _number(value) and 0 < value <= MOST_WEIGHT:
        return float(value)
    return Reason("bad_weight", f"a weight is above 0 and at most {MOST_WEIGHT:g}, and not {value!r}")


def _model(value: Any) -> str | Reason:
    name = value.strip() if isinstance(value, str) else None
    if name is None or len(name) > 120:
        return Reason("bad_model", f"a model is named by 120 characters at most, and not by {str(value)[:80]!r}")
    return name


def _zone(value: Any) -> str | Reason:
    """Empty: the cluster's."""
    if not isinstance(value, str):
        return Reason("bad_time_zone", f"a time zone is called like Europe/Istanbul, and not {value!r}")
    found = zone(value.strip()) if value.strip() else None
    return found if isinstance(found, Reason) else value.strip()


def _band(value: Any) -> str | Reason:
    return value if value in BANDS else Reason("bad_band", f"a band is one of {', '.join(BANDS)}, and not {value!r}")


def _kept(made: Callable[..., Any], example: str) -> Checked:
    """None, or a mapping with `made`'s arguments."""

    def check(value: Any) -> Any:
        if value is None:
            return None
        try:
            return made(**value)
        except TypeError:
            return Reason("bad_term", f"it is written like {example}, and not {value!r}")

    return check


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


_LEVEL: dict[str, Checked] = {
    "allow": _allow,
    "in_cluster": _flag("in_cluster"),
    "no_store": _flag("no_store"),
    "key_ttl_days": _days,
    "tools": _tools,
}
TERMS: dict[str, dict[str, Checked]] = {
    "organisation": _LEVEL,
    "team": _LEVEL,
    "project": {
        **_LEVEL,
        "weight": _weight,
        "when_spent": _model,
        "time_zone": _zone,
        "reuse": _kept(reuse, '{"ttl_s": 3600, "any": false, "similar": null}'),
        "keep": _kept(keep, '{"hours": 72, "sample": 1.0}'),
    },
    "key": {"allow": _allow, "tools": _tools, "band": _band},
}
_A = {"organisation": "an organisation", "team": "a team", "project": "a project", "key": "a key"}
