"""`llmgw engine`: what runs models on the nodes, and how it comes there."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from fleet import questions, selectors
from fleet.actions import nodes
from llmgw.cluster.commands import NounCommand, actor, table
from llmgw.cluster.errors import Conflict, Invalid

_ASK_S = 400.0


class Command(NounCommand):
    help = "Engines: what each node has, which build of it, and whether it takes llmgw's flags."
    examples = (
        "  llmgw engine list\n"
        "  llmgw engine list vllm\n"
        "  llmgw engine build gpu07 vllm cu129\n"
        "  llmgw engine build gpu07 vllm auto\n"
        "  llmgw engine check vllm --node gpu07\n"
        "  llmgw engine check vllm --bin /opt/vllm/bin/vllm"
    )

    def build(self) -> None:
        listed = self.verb("list", _list, "every node's engines", show=_table)
        listed.add_argument("engine", nargs="?", help="of this one only")
        build = self.verb("build", _build, "choose which build a node installs", show=_chosen)
        build.add_argument("node", help="the node's id")
        build.add_argument("engine", help="llamacpp, vllm or sglang")
        build.add_argument("build", help="auto (what its hardware runs), none, or one by name")
        add_check(self.verb("check", check, "whether an installed engine takes the flags llmgw builds", show=checked))


def add_check(parser: Any) -> None:
    parser.add_argument("engine", help="llamacpp, vllm, sglang or trtllm")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bin", metavar="PATH", help="its program, or its Python interpreter, on this machine")
    where.add_argument("--node", metavar="NODE", help="the one that this node uses")


def _list(engine: str | None) -> list[dict[str, Any]]:
    return selectors.engines(engine)


def _table(rows: list[dict[str, Any]]) -> None:
    shown = [
        {
            **r,
            "state": f"installing: {r['installing']}" if r["state"] == "installing" and r["installing"] else r["state"],
            "problem": r["problem"]
            or (
                f"meanwhile: {r['installing']}" if r["installing"] and r["version"] and r["state"] == "ready" else None
            ),
        }
        for r in rows
    ]
    table(shown, ("node", "engine", "version", "build", "wanted", "chosen", "state", "problem", "tested_with"))


def _build(node: str, engine: str, build: str) -> dict[str, Any]:
    chosen = nodes.engine_build(node_id=node, engine=engine, build=build, actor=actor())
    return {"node": node, "engine": engine, "build": build, "chosen": chosen}


def _chosen(found: dict[str, Any]) -> None:
    print(f"{found['node']} is told: {found['engine']} {found['build']}")
    print("  llmgw engine list shows how it goes")


def check(engine: str, bin: str | None, node: str | None) -> dict[str, Any]:
    """What the engine was found to be; raises `Conflict` where it does not take all flags."""
    found = _on_node(node, engine) if node is not None else _here(engine, str(bin))
    problem = found.get("problem")
    if problem:
        raise Conflict(problem["code"], problem["sentence"], problem.get("command") or "")
    if found["unknown"]:
        flags = ", ".join(found["unknown"])
        raise Conflict("unknown_flags", f"{found['bin']} does not know {flags}, which llmgw builds for {engine}")
    return found


def checked(found: dict[str, Any]) -> None:
    version = f" {found['version']}" if found["version"] else ""
    print(f"{found['engine']}{version} takes all {len(found['flags'])} flags that llmgw builds")
    for device in found["devices"] or ():
        print(f"  {device}")
    print(f"tested with: {found['tested_with']}")


def _here(engine: str, path: str) -> dict[str, Any]:
    """By the agent's own command: this side of the wire starts no engines."""
    asked = [sys.executable, "-m", "agent.node.main", "engine-check", engine, "--bin", path, "--json"]
    try:
        done = subprocess.run(asked, capture_output=True, timeout=_ASK_S, check=False)
        found: dict[str, Any] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as e:
        raise Conflict("not_checked", f"the engine could not be asked: {type(e).__name__}: {e}") from None
    return found


def _on_node(node: str, engine: str) -> dict[str, Any]:
    answer = questions.ask(node, "engine_check", {"engine": engine}, timeout_s=60.0)
    if not answer.ok:
        raise Invalid("not_checked", f"{node}: {answer.problem}")
    return dict(answer.body)
