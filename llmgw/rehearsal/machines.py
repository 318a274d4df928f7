"""The processes of the pretended fleet: their files, their papers, and what is said to them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec

from agent.rehearsal.values import Done, Fleet, NodeSeen, Order, PretendedNode, Seen
from llmgw.cluster import pki
from llmgw.cluster.errors import Conflict
from llmgw.rehearsal.worldfile import World

_PATIENCE_S = 60.0


@dataclass
class _Process:
    process: subprocess.Popen[bytes]
    nodes: frozenset[str]


class Machines:
    """All nodes of a world, in as many processes as it says. One order at a time."""

    def __init__(self, world: World, home: Path, pki_dir: Path, server: str) -> None:
        self._world, self._home, self._pki, self._server = world, home, pki_dir, server
        self._nodes = world.nodes(64 + os.getpid() % 128)
        self._processes: list[_Process] = []
        self._number = 0
        self._lock = threading.Lock()

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(n.id for n in self._nodes)

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(p.process.pid for p in self._processes)

    def begin(self) -> None:
        """Makes the papers, and starts the processes; no agent runs yet."""
        papers = self._home / "rehearsal" / "papers"
        papers.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_papers(papers)
        models = {m.definition.name: m.weights for m in self._world.models}
        each = -(-len(self._nodes) // self._world.processes)
        for number, start in enumerate(range(0, len(self._nodes), each)):
            mine = self._nodes[start : start + each]
            fleet = Fleet(
                server=self._server,
                homes=str(self._home / "rehearsal" / "nodes"),
                papers=str(papers),
                nodes=mine,
                models=models,
                load_speed=self._world.load_speed,
                answer_speed=self._world.answer_speed,
                seed=self._world.seed,
            )
            path = self._home / "rehearsal" / f"fleet-{number}.json"
            path.write_bytes(msgspec.json.encode(fleet))
            self._processes.append(_Process(self._start(path, number), frozenset(n.id for n in mine)))

    def tell(self, do: str, nodes: Iterable[str] = (), **args: Any) -> tuple[str, ...]:
        """What the order touched. Raises `Conflict` where it could not be carried out. Without nodes: all."""
        return tuple(t for done in self._all(do, tuple(nodes), args) for t in done.touched)

    def seen(self) -> Seen:
        """The truth about every node."""
        nodes: list[NodeSeen] = []
        doubled: list[str] = []
        requests, cpu_s, rss = 0, 0.0, 0
        for done in self._all("seen", (), {}):
            if done.seen is not None:
                nodes += done.seen.nodes
                doubled += done.seen.doubled
                requests += done.seen.requests
                cpu_s += done.seen.cpu_s
                rss += done.seen.rss_bytes
        return Seen(tuple(nodes), tuple(doubled), requests, cpu_s, rss)

    def end(self) -> None:
        for one in self._processes:
            if one.process.stdin is not None:
                one.process.stdin.close()
        for one in self._processes:
            try:
                one.process.wait(15)
            except subprocess.TimeoutExpired:
                one.process.kill()
                one.process.wait()
            if one.process.stdout is not None:
                one.process.stdout.close()
        self._processes = []

    def _all(self, do: str, nodes: tuple[str, ...], args: dict[str, Any]) -> list[Done]:
        with self._lock:
            asked = [p for p in self._processes if not nodes or p.nodes & set(nodes)]
            self._number += 1
            order = Order(self._number, do, nodes, args)
            for one in asked:
                assert one.process.stdin is not None
                try:
                    one.process.stdin.write(msgspec.json.encode(order) + b"\n")
                    one.process.stdin.flush()
                except OSError:
                    raise self._died(one) from None
            return [self._answer(one) for one in asked]

    def _answer(self, one: _Process) -> Done:
        assert one.process.stdout is not None
        line = one.process.stdout.readline()
        if not line:
            raise self._died(one)
        done = msgspec.json.decode(line, type=Done)
        if done.problem:
            raise Conflict("order_refused", done.problem)
        return done

    def _died(self, one: _Process) -> Conflict:
        log = self._home / "logs" / "rehearsal.log"
        tail = log.read_text(errors="replace").splitlines()[-1:] if log.exists() else []
        return Conflict("fleet_ended", f"the pretended fleet's process ended: {tail[0] if tail else 'without a word'}")

    def _start(self, path: Path, number: int) -> subprocess.Popen[bytes]:
        (self._home / "logs").mkdir(mode=0o700, parents=True, exist_ok=True)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with open(self._home / "logs" / "rehearsal.log", "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "agent.rehearsal", str(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def _make_papers(self, papers: Path) -> None:
        authority = pki.ensure_authority(self._pki)
        (papers / "ca.pem").write_text(authority.pem)
        for node in self._nodes:
            if (papers / f"{node.id}.pem").exists():
                continue
            key = ec.generate_private_key(ec.SECP256R1())
            issued = pki.issue(authority, key.public_key(), node.id, 30)
            (papers / f"{node.id}-key.pem").write_text(pki.key_pem(key))
            (papers / f"{node.id}.pem").write_text(issued.pem)


def shown(nodes: Iterable[PretendedNode]) -> str:
    return json.dumps([n.id for n in nodes])
