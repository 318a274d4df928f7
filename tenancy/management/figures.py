"""Options that say limits, the same in every command that sets some."""

from __future__ import annotations

import argparse
from typing import Any

from tenancy.core.limits import PERIODS

FIGURES = ("rpm", "tpm", "concurrent", "budget", "period")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rpm", type=whole, metavar="N", help="requests in any 60 seconds")
    parser.add_argument("--tpm", type=whole, metavar="N", help="tokens in any 60 seconds")
    parser.add_argument("--concurrent", type=whole, metavar="N", help="requests at once")
    parser.add_argument("--budget", metavar="AMOUNT", help="money in a period: 250 or 12.50")
    parser.add_argument("--period", choices=PERIODS, help="of the budget; without it, what it was, or month")


def said(options: dict[str, Any]) -> dict[str, Any]:
    """What was named, taken out of `options`."""
    found = {name: options.pop(name) for name in FIGURES}
    return {name: figure for name, figure in found.items() if figure is not None}


def whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"a whole number, 0 or more, and not {text!r}")
    return int(text)
