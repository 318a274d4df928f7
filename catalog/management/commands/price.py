"""`llmgw price`: what models cost."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from catalog import selectors
from catalog.actions import prices
from catalog.core.prices import FIGURES
from llmgw.cluster.commands import NounCommand, actor, table
from llmgw.money import written
from llmgw.price import MICRO

_HELP = {
    "prompt_per_1k": "1 000 prompt tokens",
    "cached_per_1k": "1 000 prompt tokens read from a cache; none: as other prompt tokens",
    "completion_per_1k": "1 000 tokens of the answer",
    "per_image": "a picture",
    "per_mesh": "a mesh",
}


class Command(NounCommand):
    help = "Prices in micro-units (2500 is 0.0025) per 1 000 tokens, per picture, per mesh."
    examples = (
        "  llmgw price show\n"
        "  llmgw price set qwen --prompt-per-1k 2500 --cached-per-1k 250 --completion-per-1k 10000\n"
        "  llmgw price set qwen --completion-per-1k 8000 --since 2027-01-01 --note 'the new contract'\n"
        "  llmgw price set qwen --default\n"
        "  llmgw price history qwen"
    )

    def build(self) -> None:
        show = self.verb("show", _show, "what models cost now", show=_table)
        show.add_argument("model", nargs="?", default="", help="by name or alias; without it, every model")
        enter = self.verb(
            "set", _set, "a new price; what is not named stays as it is, and earlier prices stay what they were", _table
        )
        enter.add_argument("model", help="by name or alias")
        for name, what in _HELP.items():
            enter.add_argument(f"--{name.replace('_', '-')}", type=_micro(name), metavar="MICRO", help=what)
        enter.add_argument(
            "--since", default="", metavar="DATE", help="from this day or moment on; without it, from now"
        )
        enter.add_argument("--note", default="", help="why, for the history")
        enter.add_argument("--default", action="store_true", help="back to the cluster's default price")
        _model(self.verb("history", _history, "every entry that was made, the latest to begin first", show=_entries))


def _model(parser: ArgumentParser) -> None:
    parser.add_argument("model", help="by name or alias")


def _micro(name: str) -> Any:
    def micro(text: str) -> int | str:
        if name == "cached_per_1k" and text == "none":
            return text
        if not (text.isascii() and text.isdigit()):
            raise ArgumentTypeError(f"a price is a whole number of micro-units (2500 is 0.0025), and not {text!r}")
        return int(text)

    return micro


def _show(model: str) -> list[dict[str, Any]]:
    found = [selectors.entry(model)] if model else selectors.entries()
    return [selectors.price(entry) for entry in found]


def _set(model: str, since: str, note: str, default: bool, **figures: Any) -> list[dict[str, Any]]:
    said = {name: None if figure == "none" else figure for name, figure in figures.items() if figure is not None}
    found = selectors.entry(model)
    price = prices.laid_over(selectors.price_now(found), said, default)
    prices.enter(model=found.name, price=price, since=since, note=note, actor=actor())
    return [selectors.price(selectors.entry(found.name))]


def _history(model: str) -> list[dict[str, Any]]:
    return selectors.price_history(selectors.entry(model))


def _table(rows: list[dict[str, Any]]) -> None:
    shown = [{**row, **_units(row), "price": "its own" if row["own"] else "the default"} for row in rows]
    table(shown, ["model", "price", *FIGURES, "since"])


def _entries(rows: list[dict[str, Any]]) -> None:
    shown = [{**row, **_units(row), "since": row["since"] or "the beginning"} for row in rows]
    table(shown, ["since", *FIGURES, "default", "actor", "note", "entered_at"])


def _units(row: dict[str, Any]) -> dict[str, Any]:
    """In the currency's unit, as people compare prices."""
    return {name: None if row[name] is None else written(row[name] * MICRO) for name in FIGURES}
