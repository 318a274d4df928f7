"""Cells of tables that somebody will open in a spreadsheet. Pure."""

from __future__ import annotations

Cell = str | int | float | None

_CALCULATED = ("=", "+", "-", "@", "\t", "\r", "\n")


def cell(value: Cell) -> str | int | float:
    """The value; text that a spreadsheet would take for a formula gets an apostrophe before it, as a spreadsheet
    itself writes text. Unknown is an empty cell."""
    if value is None:
        return ""
    if isinstance(value, str) and (value.startswith(_CALCULATED) or value.lstrip().startswith(_CALCULATED)):
        return f"'{value}"
    return value
