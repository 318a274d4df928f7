"""`llmgw ledger`: whether the money is right, and corrections of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.utils import timezone

from gateway import moments
from gateway.actions import corrections
from gateway.control import retention, verifying
from llmgw.cluster.commands import NounCommand, actor, table
from llmgw.cluster.errors import Invalid
from llmgw.money import written


class Command(NounCommand):
    help = "The ledger: check a month's money against everything that knows of it, and correct it by new entries."
    examples = (
        "  llmgw ledger verify\n"
        "  llmgw ledger verify --month 2026-11 --json\n"
        "  llmgw ledger reprice --model llama-70b --from 2026-11-01 --to 2026-11-07 --reason 'a typing error'"
    )

    def build(self) -> None:
        verify = self.verb("verify", self.verify, "compare rows, sums, prices, budgets and counters", _print)
        verify.add_argument("--month", metavar="YYYY-MM", help="the running one if not given")
        reprice = self.verb("reprice", _reprice, "enter what a model's answers cost more or less by its prices now")
        reprice.add_argument("--model", required=True)
        reprice.add_argument(
            "--from", dest="since", required=True, metavar="WHEN", help="2026-11-03 or 2026-11-03T12:00"
        )
        reprice.add_argument(
            "--to", dest="until", required=True, metavar="WHEN", help="a day is included, a moment is not"
        )
        reprice.add_argument("--reason", required=True, help="kept with each entry")

    def handle(self, *args: Any, **options: Any) -> None:
        """Exit code 1 where something differs."""
        self.found: dict[str, Any] = {}
        super().handle(*args, **options)
        if self.found.get("differences"):
            raise SystemExit(1)

    def verify(self, month: str | None) -> dict[str, Any]:
        self.found = _verify(month)
        return self.found


def _verify(month: str | None) -> dict[str, Any]:
    now = timezone.now()
    first, until = moments.month(month, now)
    if until <= retention.oldest(now):
        raise Invalid("rows_are_gone", f"rows of {first:%Y-%m} are not kept any more (keep.usage_days)")
    report = verifying.verify(first, until, settings.MACHINE.spool_dir)
    return {
        "month": f"{first:%Y-%m}",
        "requests": report.requests,
        "cost": written(report.cost),
        "corrections": written(report.corrections),
        "checks": report.checks,
        "differences": [asdict(d) for d in report.differences],
    }


def _print(found: dict[str, Any]) -> None:
    print(
        f"{found['month']}: {found['requests']} requests cost {found['cost']}, {found['corrections']} of it corrections"
    )
    for check, what in found["checks"].items():
        differs = sum(d["check"] == check for d in found["differences"])
        print(f"  {check:<9} {'DIFFERS' if differs else 'agrees':<8} {what}")
    if found["differences"]:
        shown = found["differences"][:50]
        table(shown, ("check", "what", "expected", "found", "sentence"))
        if len(found["differences"]) > len(shown):
            print(f"… and {len(found['differences']) - len(shown)} more: --json has all")


def _reprice(model: str, since: str, until: str, reason: str) -> dict[str, Any]:
    done = corrections.reprice(
        model=model, since=moments.read(since), until=moments.read(until, end=True), reason=reason, actor=actor()
    )
    return {**asdict(done), "delta": written(done.delta)}
