"""A shard's record on disk: what lets the next agent describe, adopt or end what this one started.

One JSON file a shard, mode 0600 (it holds the engine's key), replaced atomically. It is written before the
process is started and again with the process in it; an agent that dies in between finds it by the launch's name.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from agent.node.home import Home, write_atomically
from agent.node.host import Identity
from agent.wire.shard import ShardSpec, Took

_log = logging.getLogger("llmgw.agent")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended that is still told to the control plane. `at` in Unix seconds."""

    state: str
    sentence: str
    last_words: tuple[str, ...] = ()
    at: float = 0.0
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class ShardFile:
    spec: ShardSpec
    store_id: str
    fingerprint: str
    """As it was when the engine was started: a newer agent may compute it otherwise, and that is a change."""
    launch: str
    """Random a start; it is in the marker of every process of it."""
    host: str
    log: str
    processes: tuple[Identity, ...] = ()
    """Sidecars first, the server last; empty until they are started."""
    since: float = 0.0
    ended: Ended | None = None
    reboots: int = 0
    """Restarts of the machine in a row that soon ended it."""
    parts: int = 1
    """Processes that it has when it is started whole."""
    took: Took = field(default_factory=Took)
    """How long the parts of its start took, as far as they are over."""


def path_of(home: Home, shard_id: str) -> Path:
    """Ids come over the wire: what is no plain name becomes one."""
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in shard_id)
    return home.shards / f"{safe.lstrip('.')[:150] or '_'}.json"


def write(home: Home, record: ShardFile) -> None:
    """Raises OSError."""
    write_atomically(path_of(home, record.spec.shard_id), msgspec.json.encode(record))


def remove(home: Home, shard_id: str) -> None:
    path_of(home, shard_id).unlink(missing_ok=True)


def sweep(home: Home) -> None:
    """Removes what writers that died in the midst of a write left."""
    for path in home.shards.glob(".*.json.*.*"):
        pid = path.name.split(".")[-2]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            path.unlink(missing_ok=True)


def read_all(home: Home) -> tuple[ShardFile, ...]:
    """Every record; a damaged one is put aside, and what it described is then nobody's and ended."""
    found = []
    for path in sorted(home.shards.glob("[!.]*.json")):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=ShardFile))
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as e:
            _log.warning("%s describes no shard (%s): it is put aside", path.name, e)
            try:
                path.replace(path.with_suffix(".damaged"))
            except OSError as problem:
                _log.warning("%s could not be put aside: %s", path.name, problem)
    return tuple(found)
