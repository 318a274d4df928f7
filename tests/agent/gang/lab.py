"""Nodes in network namespaces, each with an agent of its own; the control plane is scripted, one server a node."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import yaml

from agent.node.home import Home, open_home
from agent.node.shardfile import ShardFile, path_of
from agent.wire.shard import Gang, Profile, ShardObserved, ShardSpec, ShardState, Source
from tests.agent.control import Control
from tests.agent.node import ROOT
from tests.agent.pki import Authority

KEY = "the-engines-own-key"
_ALL = tuple(ShardState)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


class LabNode:
    """A machine: a namespace with a cable to the others, and an agent in it, or none."""

    control: Control
    """Where nobody else enrolled it."""

    def __init__(self, lab: Lab, number: int, home: Home) -> None:
        self.lab, self.number, self.home = lab, number, home
        self.name, self.address = f"n{number}", lab.address(10 + number)
        self.namespace, self.cable = f"{lab.prefix}n{number}", f"{lab.prefix}v{number}"
        self.boot = f"boot-{number}-1"
        self.agent: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        with open(self.home.path / "agent.out", "ab") as out:
            self.agent = subprocess.Popen(
                ["ip", "netns", "exec", self.namespace, sys.executable, "-m", "tests.agent.gang.node",
                 str(self.home.path), self.boot],
                cwd=ROOT, stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def kill_agent(self) -> None:
        """Without a word; its engines live."""
        assert self.agent is not None
        self.agent.send_signal(signal.SIGKILL)
        self.agent.wait()

    def reboot(self) -> None:
        """Everything on it is gone, and it comes back as another boot."""
        self.power_off()
        head, _, number = self.boot.rpartition("-")
        self.boot = f"{head}-{int(number) + 1}"
        self.begin()

    def power_off(self) -> None:
        if self.agent is not None:
            self.agent.kill()
            self.agent.wait()
        for pid in subprocess.run(
            ["ip", "netns", "pids", self.namespace], capture_output=True, text=True, check=False
        ).stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def cut(self, *, off: bool = True) -> None:
        """Its cable is pulled out, or put in again."""
        _ip("link", "set", self.cable, "down" if off else "up")

    async def shard(self, spec: ShardSpec, *states: ShardState, timeout_s: float = 15.0) -> ShardObserved:
        return await self.control.shard(
            spec.shard_id, *(states or _ALL), incarnation=spec.incarnation, timeout_s=timeout_s
        )

    def record(self, spec: ShardSpec) -> ShardFile:
        return msgspec.json.decode(path_of(self.home, spec.shard_id).read_bytes(), type=ShardFile)


class Lab:
    """A few nodes and the cables between them. Needs root and iproute2."""

    def __init__(self, folder: Path, enrol: Callable[[LabNode], dict[str, object]] | None = None) -> None:
        """`enrol` gives what a node's agent.yaml says of a control plane that is not scripted."""
        self._enrol = enrol
        pid = os.getpid()
        self.folder, self.prefix = folder, f"lg{pid % 100000}"
        self._net = f"10.{80 + pid % 40}.{pid // 40 % 250}"
        self.nodes: list[LabNode] = []
        self._stack = contextlib.AsyncExitStack()
        self._meeting = 18900
        self._replicas = 0

    def address(self, host: int) -> str:
        return f"{self._net}.{host}"

    async def open(self, count: int) -> None:
        if os.getuid() != 0 or shutil.which("ip") is None:
            pytest.skip("network namespaces need root and iproute2")
        try:
            _ip("link", "add", f"{self.prefix}b", "type", "bridge")
            _ip("addr", "add", f"{self.address(1)}/24", "dev", f"{self.prefix}b")
            _ip("link", "set", f"{self.prefix}b", "up")
            for number in range(count):
                await self._node(number)
        except OSError as e:
            await self.close()
            pytest.skip(f"no network namespace can be made here: {e}")
        for node in self.nodes:
            node.begin()

    async def _node(self, number: int) -> None:
        node = LabNode(self, number, open_home(self.folder / f"n{number}"))
        self.nodes.append(node)
        told = self._enrol(node) if self._enrol is not None else await self._scripted(node)
        node.home.settings.write_text(yaml.safe_dump({"node_id": node.name, "address": node.address, **told}))
        inner = f"{self.prefix}i{number}"
        _ip("netns", "add", node.namespace)
        _ip("link", "add", node.cable, "type", "veth", "peer", "name", inner)
        _ip("link", "set", inner, "netns", node.namespace)
        _ip("link", "set", node.cable, "master", f"{self.prefix}b")
        _ip("link", "set", node.cable, "up")
        _ip("-n", node.namespace, "link", "set", "lo", "up")
        _ip("-n", node.namespace, "addr", "add", f"{node.address}/24", "dev", inner)
        _ip("-n", node.namespace, "link", "set", inner, "up")

    async def _scripted(self, node: LabNode) -> dict[str, object]:
        authority = Authority(self.folder / f"pki{node.number}", names=(self.address(1),))
        node.control = await self._stack.enter_async_context(Control(authority, host=self.address(1)))
        pair = authority.node(node.name)
        return {
            "server": node.control.url,
            "tls": {"ca": str(authority.pem), "cert": str(pair.cert), "key": str(pair.key)},
        }

    async def close(self) -> None:
        for node in self.nodes:
            node.power_off()
            for arguments in (("netns", "del", node.namespace), ("link", "del", node.cable)):
                with contextlib.suppress(OSError):
                    _ip(*arguments)
        with contextlib.suppress(OSError):
            _ip("link", "del", f"{self.prefix}b")
        await self._stack.aclose()

    def gang(self, size: int | None = None, **profile: object) -> list[ShardSpec]:
        """The ranks of a new replica, one on each node."""
        nodes = self.nodes[:size]
        self._replicas += 1
        self._meeting += 1
        replica = f"r-{self._replicas}"
        gang = Gang(tuple(n.address for n in nodes), self._meeting)
        values: dict[str, object] = {"startup_timeout_s": 20.0, "stop_grace_s": 1.0, "nodes": len(nodes), **profile}
        made = Profile("two", "ganged", **values)  # type: ignore[arg-type]
        return [
            ShardSpec(
                f"{replica}.{rank}", replica, "tiny", made, Source("starter:tiny"), 9000 + self._replicas, KEY,
                rank, len(nodes), gang=gang,
            )
            for rank in range(len(nodes))
        ]  # fmt: skip

    async def want(self, specs: list[ShardSpec]) -> None:
        """Each node its own rank, as the planner's order has it."""
        for node in self.nodes:
            await node.control.want(*[s for s in specs if s.gang and s.gang.addresses[s.rank] == node.address])

    async def serving(self, specs: list[ShardSpec], timeout_s: float = 20.0) -> list[ShardObserved]:
        by_address = {n.address: n for n in self.nodes}
        nodes = [by_address[s.gang.addresses[s.rank]] for s in specs if s.gang]
        waits = [n.shard(s, ShardState.READY, timeout_s=timeout_s) for n, s in zip(nodes, specs, strict=True)]
        return list(await asyncio.gather(*waits))


def again(specs: list[ShardSpec]) -> list[ShardSpec]:
    """The next try of a replica: every rank with a new incarnation, on another port."""
    return [replace(s, incarnation=s.incarnation + 1, port=s.port + 100) for s in specs]


@contextlib.asynccontextmanager
async def opened(folder: Path, count: int) -> AsyncIterator[Lab]:
    lab = Lab(folder)
    await lab.open(count)
    try:
        yield lab
    finally:
        await lab.close()
