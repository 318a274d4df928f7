"""What an agent's home tells of it from outside: whether one runs, its link, its shards."""

from __future__ import annotations

from typing import Any

import msgspec

from agent.node import shardfile
from agent.node.examination import Noted
from agent.node.home import Home, HomeTaken, only_agent
from agent.node.linux import LinuxHost


def look(home: Home) -> dict[str, Any]:
    """`{"home", "agent_pid", "link": {"state", "problem", …}, "settings_problem", "shards": […]}`."""
    host, pid = LinuxHost(), agent_pid(home)
    link = link_of(home)
    settings_problem = link.pop("settings_problem", None)
    if pid is None:
        link, settings_problem = {**link, "state": "not running"}, None
    shards = []
    for record in shardfile.read_all(home):
        living = bool(record.processes) and all(host.find(p) is not None for p in record.processes)
        shards.append(
            {
                "shard_id": record.spec.shard_id,
                "model": record.spec.model,
                "state": record.ended.state if record.ended else "running" if living else "gone",
                "pid": record.processes[-1].pid if living else None,
                "port": record.spec.port,
                "reason": record.ended.sentence if record.ended else None,
            }
        )
    return {
        "home": str(home.path),
        "agent_pid": pid,
        "link": link,
        "settings_problem": settings_problem,
        "shards": shards,
    }


def refusal(home: Home) -> str | None:
    """What the running agent was told last, if it was refused: only a greeting would find that out again."""
    link = link_of(home)
    return link.get("problem") if link.get("state") == "refused" and agent_pid(home) is not None else None


def noted(home: Home) -> Noted:
    """What the running agent learned on its link; nothing where none runs."""
    link = link_of(home) if agent_pid(home) is not None else {}
    skew_s, problem = link.get("skew_s"), link.get("renewal_problem")
    return Noted(
        float(skew_s) if isinstance(skew_s, int | float) else None, str(problem) if isinstance(problem, str) else None
    )


def agent_pid(home: Home) -> int | None:
    """Of the agent that holds the home's lock."""
    try:
        with only_agent(home):
            return None
    except HomeTaken:
        try:
            return int((home.path / "lock").read_text())
        except (OSError, ValueError):
            return None


def link_of(home: Home) -> dict[str, Any]:
    """What the agent noted last of its link."""
    try:
        found: Any = msgspec.json.decode(home.status.read_bytes())
    except (OSError, msgspec.MsgspecError):
        return {}
    return found if isinstance(found, dict) else {}
