"""`llmgw limits`: what levels of the tree and keys allow."""

from __future__ import annotations

from typing import Any

from llmgw.cluster.commands import NounCommand, actor, cell, table
from llmgw.cluster.errors import Invalid
from tenancy import allowances, selectors
from tenancy.actions import limits
from tenancy.core.terms import BANDS
from tenancy.management import allow as allowlist
from tenancy.management import figures
from tenancy.models import Key, Level

_LEVEL = "organisation, organisation/team, organisation/team/project, or key: with its id or first characters"
_BACK = ("rpm", "tpm", "concurrent", "budget", "allow", "tools", "key-ttl-days", "when-spent", "time-zone")
_EMPTY = {"when-spent", "time-zone"}


class Command(NounCommand):
    help = "Limits of levels and keys: each binds the sum of everything below it."
    examples = (
        "  llmgw limits show Acme/ml/train\n"
        "  llmgw limits set Acme --budget 5000 --period month --in-cluster\n"
        "  llmgw limits set Acme/ml --rpm 600 --tpm 2000000 --key-ttl-days 30\n"
        "  llmgw limits set Acme/ml/train --budget 250.00 --time-zone Europe/Istanbul --when-spent tiny --weight 2\n"
        "  llmgw limits set key:llmgw_Ab3dEf --rpm 10 --band batch\n"
        "  llmgw limits set Acme/ml --none rpm --none key-ttl-days"
    )

    def build(self) -> None:
        show = self.verb("show", _show, "what a level and those above it say, and what holds", show=_shown)
        show.add_argument("level", help=_LEVEL)
        change = self.verb("set", _set, "what is named is changed, everything else stays as it is", show=_shown)
        change.add_argument("level", help=_LEVEL)
        figures.options(change)
        allowlist.option(change)
        change.add_argument("--tools", metavar="PATTERN,PATTERN", help="tools that may be used: jira.*,db.query")
        residency = change.add_mutually_exclusive_group()
        residency.add_argument(
            "--in-cluster", action="store_const", const=True, help="nothing of it leaves the cluster", dest="in_cluster"
        )
        residency.add_argument("--anywhere", action="store_const", const=False, dest="in_cluster", help="it may")
        store = change.add_mutually_exclusive_group()
        store.add_argument(
            "--no-store", action="store_const", const=True, help="nothing of it is kept", dest="no_store"
        )
        store.add_argument("--store", action="store_const", const=False, dest="no_store", help="it may be")
        change.add_argument("--key-ttl-days", type=figures.whole, metavar="DAYS", help="the longest life of new keys")
        change.add_argument("--weight", type=float, help="of a project: its share when requests wait; 1 without it")
        change.add_argument("--when-spent", metavar="MODEL", help="of a project: who answers when its budget is spent")
        change.add_argument("--time-zone", metavar="ZONE", help="of a project: by whose clock its budgets begin")
        change.add_argument("--band", choices=BANDS, help="of a key: who goes first when requests wait")
        change.add_argument(
            "--none", action="append", default=[], choices=_BACK, metavar="NAME", help=f"take back {', '.join(_BACK)}"
        )


def _show(level: str) -> dict[str, Any]:
    return allowances.of(_found(level))


def _set(level: str, none: list[str], allow: str | None, tools: str | None, **named: Any) -> dict[str, Any]:
    said = figures.said(named)
    terms = {name: value for name, value in named.items() if value is not None}
    if allow is not None:
        terms["allow"] = allowlist.names(allow)
    if tools is not None:
        terms["tools"] = allowlist.names(tools)
    for name in none:
        term = name.replace("-", "_")
        if term in said or term in terms:
            raise Invalid("bad_limit", f"--{name} is given and taken back in one")
        if name in figures.FIGURES:
            said[name] = None
        else:
            terms[term] = "" if name in _EMPTY else None
    if not said and not terms:
        raise Invalid(
            "bad_limit", "say what should change: --rpm, --budget, --in-cluster, …", "llmgw limits set --help"
        )
    return allowances.of(limits.change(level=_found(level), limits=said, terms=terms, actor=actor()))


def _found(ref: str) -> Level | Key:
    what, colon, name = ref.partition(":")
    return selectors.key(name) if colon and what == "key" else selectors.level(ref)


def _shown(found: dict[str, Any]) -> None:
    table([{"level": level["level"], **level["limits"]} for level in found["levels"]])
    in_force = found["in_force"]
    if "limits" in in_force:
        told = [f"{n} {cell(v)}" for n, v in in_force["limits"].items() if v is not None]
        print(f"\nThe key's own, with the cluster's defaults: {', '.join(told) or 'none'}")
    print("\nWhat holds there:")
    for name, value in in_force.items():
        if name == "limits":
            continue
        words = "all" if name == "allow" and value is None else "; ".join(map(cell, value)) if name == "tools" else None
        print(f"  {name.replace('_', ' ') + ':':<14} {cell(value) if words is None else words or '-'}")
