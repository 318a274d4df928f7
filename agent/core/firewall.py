"""Which ports a machine's nftables shut to everybody else, by `nft -j list ruleset` (libnftables-json(5)). Pure.

What cannot be told is taken for open: a named set of ports, a verdict map, a chain of another program's. Said is only
what is certain: nothing that lets new connections in names the port.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

_FAMILIES = ("inet", "ip")
_OTHERS = frozenset({"udp", "icmp", "icmpv6", "ipv6-icmp", "sctp", "gre", "esp", "ah", 1, 17, 58})
"""Protocols, by name and number, that are not TCP."""


@dataclass(frozen=True, slots=True)
class Shut:
    """`chain`: `inet filter input`, which drops what no rule lets in; `ports`: of those asked about."""

    chain: str
    ports: tuple[int, ...]


def shut(ruleset: str, ports: Collection[int]) -> tuple[Shut, ...] | None:
    """None for what is no ruleset."""
    try:
        listed = msgspec.json.decode(ruleset)["nftables"]
        chains = [e["chain"] for e in listed if "chain" in e]
        rules = [e["rule"] for e in listed if "rule" in e]
    except (msgspec.DecodeError, KeyError, TypeError):
        return None
    found = []
    for chain in chains:
        if chain.get("hook") != "input" or chain.get("family") not in _FAMILIES:
            continue
        mine = _reached(chain["name"], [r for r in rules if _table(r) == _table(chain)])
        if chain.get("policy") == "drop" or any(_drops_all(r) for r in mine if r["chain"] == chain["name"]):
            closed = tuple(sorted(p for p in ports if not any(_lets_in(r, p) for r in mine)))
            if closed:
                found.append(Shut(f"{' '.join(_table(chain))} {chain['name']}", closed))
    return tuple(found)


def _table(of: dict[str, Any]) -> tuple[str, str]:
    return of["family"], of["table"]


def _reached(chain: str, rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rules of a chain, and of those that it leads to."""
    names, found = [chain], []
    for name in names:
        for rule in (r for r in rules if r["chain"] == name):
            found.append(rule)
            targets = (e.get("jump") or e.get("goto") for e in rule.get("expr", ()))
            names += [t["target"] for t in targets if t is not None and t["target"] not in names]
    return found


def _drops_all(rule: dict[str, Any]) -> bool:
    steps = [set(e) for e in rule.get("expr", ())]
    return not any("match" in s for s in steps) and any(s & {"drop", "reject"} for s in steps)


def _lets_in(rule: dict[str, Any], port: int) -> bool:
    """Whether it may accept a new TCP connection to `port` from another machine."""
    steps = rule.get("expr", ())
    if not any("accept" in e or "vmap" in e for e in steps):
        return False
    return all(_may_match(e["match"], port) for e in steps if "match" in e)


def _may_match(match: dict[str, Any], port: int) -> bool:
    left, right = match.get("left"), match.get("right")
    if match.get("op") not in ("==", "in") or not isinstance(left, dict):
        return True
    if "ct" in left:
        return left["ct"].get("key") != "state" or "new" in _values(right)
    if "meta" in left:
        key = left["meta"].get("key")
        if key in ("iif", "iifname"):
            return set(_values(right)) != {"lo"}
        return key != "l4proto" or not set(_values(right)) <= _OTHERS
    payload = left.get("payload", {})
    if payload.get("field") in ("protocol", "nexthdr"):
        return not set(_values(right)) <= _OTHERS
    if payload.get("field") == "dport":
        return payload.get("protocol") in ("tcp", "th") and _covers(right, port)
    return payload.get("protocol") not in ("udp", "icmp", "icmpv6")


def _values(right: Any) -> Iterable[Any]:
    if isinstance(right, dict) and "set" in right:
        return _values(right["set"])
    found = right if isinstance(right, list) else [right]
    return [v for v in found if isinstance(v, (str, int))] or [""]


def _covers(right: Any, port: int) -> bool:
    if isinstance(right, int):
        return right == port
    if isinstance(right, list):
        return any(_covers(r, port) for r in right)
    if isinstance(right, dict):
        if "range" in right:
            low, high = right["range"]
            return not isinstance(low, int) or not isinstance(high, int) or low <= port <= high
        return _covers(right["set"], port) if "set" in right else True
    return True  # a named set
