"""`llmgw replica`: the running copies of models."""

from __future__ import annotations

import sys
from typing import Any

from fleet import logs, selectors
from fleet.actions import replicas
from fleet.core.sizes import gib
from llmgw.cluster.commands import NounCommand, actor, cell, table


class Command(NounCommand):
    help = "Replicas: the running copies of models."
    examples = (
        "  llmgw replica list\n"
        "  llmgw replica list --model tiny\n"
        "  llmgw replica show r-0123456789\n"
        "  llmgw replica logs r-0123456789 -n 50\n"
        "  llmgw replica restart r-0123456789\n"
        "  llmgw replica retry r-0123456789"
    )

    def build(self) -> None:
        listing = self.verb("list", selectors.replicas, "every replica", show=_list, watch=True)
        listing.add_argument("--model", help="of this model only")
        listing.add_argument("--node", help="on this node only")
        self._named("show", _show, "one replica in full, with its history", show=_shown)
        tail = self._named("logs", _logs, "the newest lines of its engine's log", show=_lines)
        tail.add_argument("-n", "--lines", type=int, default=100, help="how many (100)")
        self._named("restart", _restart, "end its engine and start it again")
        self._named("retry", _retry, "try a failed or parked one again")

    def _named(self, name: str, run: Any, help: str, show: Any = None) -> Any:
        verb = self.verb(name, run, help, show=show)
        verb.add_argument("replica", help="the replica's id")
        return verb


def _list(rows: list[dict[str, Any]]) -> None:
    table(
        [{**r, "node": r["nodes"]} for r in rows],
        ("replica", "model", "profile", "state", "node", "port", "since", "reason"),
    )


def _show(replica: str) -> dict[str, Any]:
    return {**selectors.replica(replica), "history": selectors.events(replica)}


def _shown(found: dict[str, Any]) -> None:
    for name, value in found.items():
        if name not in ("spec", "shards", "history", "predicted", "warnings"):
            print(f"{name.replace('_', ' ') + ':':<16} {cell(value)}")
    _measured(found)
    for shard in found["shards"]:
        if shard["last_words"]:
            print(f"\nlast words of rank {shard['rank']}:")
            print("\n".join(f"  {line}" for line in shard["last_words"]))
    print("\nhistory:")
    table(found["history"], ("at", "state", "node", "reason"))


def _measured(found: dict[str, Any]) -> None:
    """What each rank takes beside what is reserved for it, and what runs of this kind have shown here."""
    print("\nranks:")
    table(
        [
            {
                **s,
                "memory": f"{_size(s['memory_bytes'])} of {_size(s['reserved_memory_bytes'])}",
                "gpu_memory": " ".join(f"{d}:{gib(held)}" for d, held in s["devices_memory"].items()),
            }
            for s in found["shards"]
        ],
        ("rank", "node", "devices", "memory", "gpu_memory", "observed"),
    )
    if found["predicted"]:
        print("\nmeasured here of such runs:")
        for kind, figure in found["predicted"].items():
            print(f"  {kind.replace('_', ' ') + ':':<14} {figure['told']}")
    for sentence in found["warnings"]:
        print(f"\nwarning: {sentence}")


def _size(value: int | None) -> str:
    return "-" if value is None else gib(value)


def _logs(replica: str, lines: int) -> dict[str, Any]:
    return {"replica": replica, "lines": logs.of_replica(replica, lines)}


def _lines(found: dict[str, Any]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in found["lines"]))


def _restart(replica: str) -> dict[str, Any]:
    replicas.restart(replica=replica, actor=actor())
    return {"replica": replica, "state": selectors.replica(replica)["state"]}


def _retry(replica: str) -> dict[str, Any]:
    replicas.retry(replica=replica, actor=actor())
    return {"replica": replica, "state": selectors.replica(replica)["state"]}
