"""`llmgw gpu`: every card, what works on it and what it does now."""

from __future__ import annotations

from typing import Any

from fleet.core.sizes import gib
from fleet.selectors import machines
from llmgw.cluster.commands import NounCommand, table


class Command(NounCommand):
    help = "GPUs: the cards and MIG instances of every node."
    examples = (
        "  llmgw gpu list\n"
        "  llmgw gpu list --class h100-80g --watch\n"
        "  llmgw gpu list --node n1 --json\n"
        "  llmgw gpu list --model llama-70b"
    )

    def build(self) -> None:
        found = self.verb(
            "list", machines.gpus, "every card: class, memory, busy, draw, model, problem", show=_show, watch=True
        )
        found.add_argument("--node", help="of this node only")
        found.add_argument("--class", dest="gpu_class", metavar="CLASS", help="of this class only")
        found.add_argument("--model", help="only those on which this model works")
        found.add_argument("--rack", help="of this rack only (label llmgw.io/rack)")


def _show(rows: list[dict[str, Any]]) -> None:
    table(
        [
            {
                "node": r["node"],
                "device": r["device"],
                "class": r["gpu_class"],
                "state": r["state"] if r["unusable"] in (None, "problem") else f"{r['state']}: {r['unusable']}",
                "model": r["model"],
                "memory_used": f"{_size(r['memory_used_bytes'])} of {_size(r['memory_bytes'])}",
                "busy": _percent(r),
                "draw_w": _draw(r),
                "temp_c": r["temperature_c"],
                "problem": r["problem"] or (f"{_size(r['foreign_bytes'])} foreign" if r["foreign_bytes"] else None),
            }
            for r in rows
        ]
    )


def _percent(row: dict[str, Any]) -> str | None:
    if row["busy_percent"] is None:
        return None
    return f"{row['busy_percent']:.0f} %" + (" (draw)" if row["busy_by"] == "draw" else "")


def _draw(row: dict[str, Any]) -> str | None:
    if row["power_w"] is None:
        return None
    limit = f" of {row['power_limit_w']:.0f}" if row["power_limit_w"] else ""
    return f"{row['power_w']:.0f}{limit}"


def _size(value: int | None) -> str:
    return "-" if value is None else gib(value)
