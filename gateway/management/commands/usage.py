"""`llmgw usage`: what was used, by whom, and what it cost."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.utils import timezone

from gateway import exporting, moments, selectors, spending
from gateway.control import retention, rollups
from llmgw.cluster.commands import NounCommand, table
from llmgw.cluster.errors import Invalid
from llmgw.money import written
from tenancy import selectors as tenancy

_COLUMNS = ("requests", "failed", "refused", "prompt_tokens", "cached_tokens", "completion_tokens", "cost")


class Command(NounCommand):
    help = "Usage: requests, tokens and money, by day, model, project, key, person, end user, tag or session."
    examples = (
        "  llmgw usage show --by model --days 7\n"
        "  llmgw usage show --project acme/ml/train --tag feature=search --by day\n"
        "  llmgw usage show --by tag:feature --from 2026-11-01 --to 2026-11-30 --json\n"
        "  llmgw usage export --project acme/ml/train --from 2026-11-01 --out november.csv\n"
        "  llmgw usage rebuild --month 2026-11"
    )

    def build(self) -> None:
        show = self.verb("show", _show, "sums of requests, tokens and money", _print)
        _which(show)
        show.add_argument("--by", default="day", help=f"{', '.join(spending.BY)} or tag:NAME; day if not given")
        export = self.verb("export", _export, "single requests as CSV, of any number")
        _which(export)
        export.add_argument("--out", type=Path, metavar="FILE", help="where to; the terminal if not given")
        rebuild = self.verb("rebuild", _rebuild, "make a month's sums anew from its rows and corrections")
        rebuild.add_argument("--month", metavar="YYYY-MM", help="the running one if not given")


def _which(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--days", type=int, default=30, help="how many days back, today included; 30 if not given")
    parser.add_argument("--from", dest="since", metavar="WHEN", help="2026-11-03 or 2026-11-03T12:30")
    parser.add_argument("--to", dest="until", metavar="WHEN", help="a day is included, a moment is not")
    parser.add_argument("--org", help="only of this organisation")
    parser.add_argument("--team", metavar="PATH", help="only of organisation/team")
    parser.add_argument("--project", metavar="PATH", help="only of organisation/team/project")
    parser.add_argument("--key", help="only of this key, by its id or its first characters")
    parser.add_argument("--person", metavar="EMAIL", help="only of this account")
    parser.add_argument("--model", help="only answered by this model")
    parser.add_argument("--tag", metavar="NAME[=VALUE]", help="only with this tag")
    parser.add_argument("--session", help="only of this session")
    parser.add_argument("--end-user", help="only for this `user`, as the client names it")


def _asked(given: dict[str, Any]) -> spending.Which:
    """Names become ids; raises a refusal."""
    find: dict[str, Callable[[str], Any]] = {
        "organisation": tenancy.organisation,
        "team": tenancy.team,
        "project": tenancy.project,
        "key": tenancy.key,
        "person": tenancy.person,
    }
    given["organisation"] = given.pop("org")
    who: dict[str, str] = {name: one(given[name]).public_id for name, one in find.items() if given[name]}
    plain = {name: given[name] for name in ("model", "tag", "session", "end_user") if given[name]}
    if given["days"] < 1:
        raise Invalid("bad_days", f"days must be 1 or more, and is {given['days']}")
    return moments.within(spending.last_days(given["days"], {**who, **plain}), given["since"], given["until"])


def _show(by: str, **given: Any) -> dict[str, Any]:
    which = _asked(given)
    rows = spending.by(which, by)
    name = by.partition(":")[0]
    labels = spending.labels(name, [row[name] for row in rows])
    return {
        "from": which.since,
        "to": which.until,
        "rows": [{**_decimal(row), **({"name": labels[row[name]]} if labels else {})} for row in rows],
        "total": _decimal(spending.total(which)),
    }


def _print(found: dict[str, Any]) -> None:
    rows, total = found["rows"], found["total"]
    if not rows:
        print("(none)")
        return
    name = next(iter(rows[0]))
    shown = [{name: row.get("name", row[name]), **{c: row[c] for c in _COLUMNS}} for row in rows]
    table([*shown, {name: "total", **{c: total[c] for c in _COLUMNS}}])
    if total["unpriced"]:
        print(f"of these {total['unpriced']} without a price")


def _decimal(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "cost": written(row["cost"])}


def _export(out: Path | None, **given: Any) -> dict[str, Any] | None:
    which = _asked(given)
    rows = selectors.of(which)
    if out is None:
        exporting.write(rows, sys.stdout)
        return None
    with out.open("w", newline="", encoding="utf-8") as file:
        return {"requests": exporting.write(rows, file), "file": str(out)}


def _rebuild(month: str | None) -> dict[str, Any]:
    now = timezone.now()
    first, until = moments.month(month, now)
    if first < retention.oldest(now):
        raise Invalid(
            "rows_are_gone",
            f"rows from before {retention.oldest(now):%Y-%m-%d} are not kept (keep.usage_days), so that the sums of "
            f"{first:%Y-%m} cannot be made anew from them",
        )
    return {"month": f"{first:%Y-%m}", "sums": rollups.rebuild(first, until)}
