"""`llmgw-agent`: the agent's commands.

llmgw-agent join CODE --home /var/lib/llmgw-agent
llmgw-agent run --home /var/lib/llmgw-agent
llmgw-agent status --home DIR --json
llmgw-agent doctor --home DIR
llmgw-agent engine-check vllm --bin /opt/vllm/bin/vllm
llmgw-agent stop-engines --home DIR
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from agent.node import commands

DEFAULT_HOME = "/var/lib/llmgw-agent"


def main(argv: Sequence[str] | None = None) -> None:
    args = _parser().parse_args(argv)
    sys.exit(args.command(args))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="llmgw-agent",
        description="Runs on every node: starts and watches engines as the control plane wishes.",
        epilog="exit status: 0 done, 1 it failed, 2 it was asked for in a way that makes no sense",
    )
    verbs = parser.add_subparsers(metavar="COMMAND", required=True)

    run = _verb(verbs, "run", commands.run, "run the agent; SIGTERM ends it and leaves its engines serving")
    run.add_argument("--verbose", action="store_true", help="tell more in the log")

    join = _verb(verbs, "join", commands.join, "join a cluster with a code (`llmgw node join-code` makes one)")
    join.add_argument("code", metavar="CODE")
    join.add_argument("--node-id", help="this node's name; the host's name when the code does not say either")
    join.add_argument("--address", help="where the gateway reaches this node's engines")

    doctor = _verb(verbs, "doctor", commands.doctor, "look for what is wrong with this node")
    doctor.add_argument("--json", action="store_true")

    engine = _verb(verbs, "engine-check", commands.engine_check, "whether an engine takes the flags llmgw builds")
    engine.add_argument("engine", metavar="ENGINE")
    engine.add_argument("--bin", metavar="PATH", help="its program or interpreter; else the one that this node uses")
    engine.add_argument("--json", action="store_true")

    _verb(verbs, "stop-engines", commands.stop_engines, "end every engine of this home, gracefully")

    status = _verb(verbs, "status", commands.status, "what this node's agent and its engines do")
    status.add_argument("--json", action="store_true")
    return parser


def _verb(verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, command: commands.Command, help_: str) -> argparse.ArgumentParser:  # fmt: skip # noqa: E501
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=help_, description=help_)
    parser.add_argument("--home", type=Path, default=Path(DEFAULT_HOME), help=f"the agent's folder ({DEFAULT_HOME})")
    parser.set_defaults(command=command)
    return parser


if __name__ == "__main__":
    main()
