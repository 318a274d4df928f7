"""Which ports a firewall shuts: what nft 1.0.6 told of a ruleset of ours (`recorded/nft.json`), and changes to it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.doctor import Level, Seen, findings
from agent.core.firewall import Shut, shut
from agent.wire.facts import NodeFacts

TOLD = (Path(__file__).parent / "recorded/nft.json").read_text()
CHAIN = "inet filter input"


def ruleset(*expressions: list[dict[str, Any]], policy: str = "drop", **chain: Any) -> str:
    """One input chain with these rules."""
    where = {"family": "inet", "table": "t"}
    base = {"chain": {**where, "name": "in", "hook": "input", "policy": policy, **chain}}
    rules = [{"rule": {**where, "chain": "in", "expr": e}} for e in expressions]
    return json.dumps({"nftables": [{"metainfo": {}}, base, *rules]})


def dport(right: Any, protocol: str = "tcp") -> dict[str, Any]:
    return {"match": {"op": "==", "left": {"payload": {"protocol": protocol, "field": "dport"}}, "right": right}}


def other(kind: str, of: dict[str, str], right: Any, op: str = "==") -> dict[str, Any]:
    return {"match": {"op": op, "left": {kind: of}, "right": right}}


ACCEPT, DROP = {"accept": None}, {"drop": None}


def test_what_nft_tells() -> None:
    assert shut(TOLD, (18100, 18150)) == (), "by a chain that the input chain leads to"
    assert shut(TOLD, (22, 8085)) == ()
    assert shut(TOLD, (18100, 18200, 9000)) == (Shut(CHAIN, (9000, 18200)),)
    assert shut(TOLD.replace('"policy": "drop"', '"policy": "accept"'), (9000,)) == ()


@pytest.mark.parametrize(
    ("rules", "open_"),
    [
        (ruleset(), False),
        (ruleset(policy="accept"), True),
        (ruleset([DROP], policy="accept"), False),
        (ruleset(hook="forward"), True),
        (ruleset([ACCEPT]), True),
        (ruleset([dport(18100), ACCEPT]), True),
        (ruleset([dport(18101), ACCEPT]), False),
        (ruleset([dport(18100, "udp"), ACCEPT]), False),
        (ruleset([dport({"set": [{"range": [18000, 19000]}]}), ACCEPT]), True),
        (ruleset([dport("@engines"), ACCEPT]), True),
        (ruleset([other("ct", {"key": "state"}, ["established"], "in"), ACCEPT]), False),
        (ruleset([other("ct", {"key": "state"}, ["new"], "in"), ACCEPT]), True),
        (ruleset([other("meta", {"key": "iifname"}, "lo"), ACCEPT]), False),
        (ruleset([other("meta", {"key": "iifname"}, "eth1"), ACCEPT]), True),
        (ruleset([other("meta", {"key": "l4proto"}, "icmp"), ACCEPT]), False),
        (ruleset([other("payload", {"protocol": "ip", "field": "saddr"}, "10.0.0.1"), ACCEPT]), True),
    ],
)  # fmt: skip
def test_rules(rules: str, open_: bool) -> None:
    assert shut(rules, (18100,)) == (() if open_ else (Shut("inet t in", (18100,)),))


@given(st.text(max_size=40) | st.binary(max_size=200).map(lambda b: TOLD[: len(b) * 10]))
def test_what_is_no_ruleset_is_not_known(text: str) -> None:
    assert shut(text, (18100,)) in (None, ())


def test_the_doctor_names_the_chain_and_the_rule_to_add() -> None:
    seen = Seen(NodeFacts(), nftables=TOLD, engine_ports=(18200, 18201))
    (found,) = findings(seen)
    assert (found.check, found.level) == ("firewall", Level.WARNING)
    assert CHAIN in found.reason.sentence
    assert "18200, 18201" in found.reason.sentence
    assert found.reason.command == f"nft insert rule {CHAIN} ip saddr GATEWAY tcp dport 18200-18201 accept"
    assert [f.level for f in findings(replace(seen, engine_ports=(18100,)))] == [Level.OK]
    assert findings(replace(seen, nftables=None)) == ()
