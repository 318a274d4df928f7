"""A run in words: the machine, the table, the verdicts. Text in and out, no files."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.cell import Cell
from bench.figures import MEASURES, Figure, Figures
from bench.rounds import QUIET, Run
from bench.targets import Verdict


def machine() -> str:
    """This machine in one line, without its name."""
    model = "unknown CPU"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    virtual = ", virtual" if "hypervisor" in Path("/proc/cpuinfo").read_text() else ""
    return (
        f"{os.cpu_count()} × {model}{virtual}; Linux {platform.release().split('-')[0]}; "
        f"Python {platform.python_version()}"
    )


def busy(cells: Sequence[Cell]) -> float:
    """The share of the two cores that others took."""
    return median(c.others_share for c in cells)


def noise(cells: Sequence[Cell]) -> str:
    share = busy(cells)
    doubt = "" if share <= QUIET else ": read ratios, not absolutes, and repeat on a quiet machine"
    return f"others took {share * 100:.0f} % of the two cores (median of cells){doubt}"


def table(figures: Figures) -> str:
    """In markdown: a row a measure, a column a contender, medians with their extremes."""
    names = list(figures)
    rows = [["", *names]]
    for measure in MEASURES:
        if any(measure.name in figures[n] for n in names):
            rows.append([measure.title, *(_shown(figures[n].get(measure.name), measure.digits) for n in names)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [_line(row, widths) for row in rows]
    rule = "|" + "|".join("-" * (w + 1) + (":" if i else "-") for i, w in enumerate(widths)) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    padded = (text.rjust(w) if i else text.ljust(w) for i, (text, w) in enumerate(zip(row, widths, strict=True)))
    return "| " + " | ".join(padded) + " |"


def _shown(figure: Figure | None, digits: int) -> str:
    if figure is None:
        return "–"
    text = f"{figure.median:,.{digits}f}"
    if figure.low == figure.high:
        return text
    return f"{text} ({figure.low:,.{digits}f}…{figure.high:,.{digits}f})"


def targets(verdicts: Sequence[Verdict]) -> str:
    lines = []
    for verdict in verdicts:
        target = verdict.target
        bound = f"{'≥' if target.at_least else '≤'} {target.bound:g} {target.unit}"
        if verdict.value is None:
            lines.append(f"{target.title}: {bound}: not measured (a peer or a workload is missing, or it fell behind)")
            continue
        words = {True: "reached", False: "NOT reached", None: "not judged, the machine was too busy"}
        lines.append(f"{target.title}: {verdict.value:.2f} {target.unit} ({bound}): {words[verdict.reached]}")
    return "\n".join(lines)


def books(run: Run) -> list[str]:
    """A sentence where the edge's books and the clients' answers disagree."""
    if run.settled is None or run.settled == run.answered_by_edges:
        return []
    return [f"the edge settled {run.settled:,} requests and clients were answered {run.answered_by_edges:,}"]


def as_json(
    figures: Figures, cells: Sequence[Cell], verdicts: Sequence[Verdict], faults: Sequence[str]
) -> dict[str, Any]:
    """Everything, for later comparison; `msgspec.json` encodes it."""
    return {
        "machine": machine(),
        "noise": noise(cells),
        "figures": figures,
        "targets": [
            {"title": v.target.title, "value": v.value, "bound": v.target.bound, "reached": v.reached} for v in verdicts
        ],
        "errors": list(faults),
        "cells": list(cells),
    }
