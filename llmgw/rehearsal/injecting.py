"""What a fault does to the pretended machines and to the rehearsal's own control plane, and how it is mended."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.db import connections

from agent.rehearsal.values import Seen
from catalog import selectors
from catalog.actions import models as model_actions
from catalog.core import reading
from fleet.actions import replicas
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.errors import Conflict
from llmgw.rehearsal import rows
from llmgw.rehearsal.control import ControlPlane
from llmgw.rehearsal.faults import KINDS, Fault
from llmgw.rehearsal.machines import Machines
from llmgw.rehearsal.store import ACTOR
from llmgw.rehearsal.worldfile import World

_BEHAVIOURS = ("crash_loop", "hang", "slow", "garbage")
_ENDS = ("lose", "crash", "out_of_memory")
"""Orders that end engines at once; of the others those end that start again."""


class Injector:
    """`pause` waits and `still` looks; both raise where the rehearsal is interrupted."""

    def __init__(
        self,
        world: World,
        control: ControlPlane,
        machines: Machines,
        pause: Callable[[float], None],
        still: Callable[[], None],
    ) -> None:
        self._world, self._control, self._machines = world, control, machines
        self._pause, self._still = pause, still

    def begin(self, fault: Fault, nodes: tuple[str, ...], seen: Seen) -> set[str]:
        """The shards that end by it, or may: what it kills, what it replaces, and what is moved away from a node that
        is given up (`NODE/*`)."""
        may_end = self._may_end(fault, nodes)
        if KINDS[fault.kind].order:
            may_end |= set(self._to_nodes(fault, nodes, seen))
        else:
            self._to_control_plane(fault)
        return may_end

    def hold(self, fault: Fault, nodes: tuple[str, ...]) -> None:
        """For as long as it lasts."""
        assert fault.for_s is not None
        if fault.kind != "flap":
            self._pause(fault.for_s)
            return
        for _ in range(fault.times - 1):
            self._pause(fault.for_s)
            self._machines.tell("mend", nodes)
            self._pause(fault.for_s)
            self._machines.tell("cut", nodes)
        self._pause(fault.for_s)

    def mend(self, fault: Fault, nodes: tuple[str, ...]) -> set[str]:
        """The shards that this ends, or may."""
        self._machines.tell("start" if fault.kind == "node_loss" else "mend", nodes)
        if fault.kind not in ("crash_loop", "out_of_memory", "hang"):
            return set()
        # What was parked for good waits for a person: in a rehearsal the person is here.
        for replica in rows.load().replicas:
            if replica.model == fault.model and replica.state == "parked":
                with suppress(Conflict):
                    replicas.retry(replica=replica.id, actor=ACTOR)
        return {s.shard_id for s in rows.load().shards if s.model == fault.model}

    # The nodes

    def _to_nodes(self, fault: Fault, nodes: tuple[str, ...], seen: Seen) -> tuple[str, ...]:
        order = KINDS[fault.kind].order
        args: dict[str, Any] = {}
        if fault.model:
            args["model"] = fault.model
        if fault.kind in _BEHAVIOURS:
            args["how"] = fault.kind
        if fault.kind == "slow_link":
            args["seconds"] = fault.delay_s
        if fault.kind == "crash":
            args["count"] = fault.count or 1
        if order == "lie":
            args["about"] = fault.kind.removeprefix("lie_")
        if fault.kind == "lie_shard":
            others = [e.shard_id for n in seen.nodes if n.id not in nodes for e in n.engines]
            args["other"] = others[0] if others else "r-0123456789.0"
        touched = self._machines.tell(order, nodes, **args)
        return touched if order in _ENDS or fault.kind == "crash_loop" else ()

    @staticmethod
    def _may_end(fault: Fault, nodes: tuple[str, ...]) -> set[str]:
        lost_s = float(cluster_settings.in_force().fleet.node_lost_s)
        long = fault.for_s is None or fault.for_s >= lost_s - 3
        gone = long and fault.kind in ("cut", "silence", "too_old_agents", "flap")
        found = {f"{node}/*" for node in nodes} if fault.kind == "node_loss" or gone else set()
        if fault.kind in ("rollout", "rollout_kill", "crash_loop", "out_of_memory"):
            found |= {s.shard_id for s in rows.load().shards if s.model == fault.model}
        return found

    # The control plane

    def _to_control_plane(self, fault: Fault) -> None:
        match fault.kind:
            case "rollout" | "rollout_kill":
                self._roll(fault.model)
                self._until(
                    lambda: any(r.stale or r.state in ("starting", "loading") for r in rows.load().replicas), 15
                )
                if fault.kind == "rollout_kill":
                    self._kill_control_plane()
            case "control_plane_kill":
                self._kill_control_plane()
            case "edge_kill":
                self._kill("edge")
            case "redis_restart":
                self._kill("redis")
            case "store_emptied":
                if fault.nodes:
                    self._machines.tell("cut", fault.nodes)
                self._control.kill_all()
                rows.forget()
                self._control.start(self._still)
                if fault.nodes:
                    self._pause(fault.delay_s)
                    self._machines.tell("mend", fault.nodes)
            case "store_restart":
                subprocess.run(self._world.store_restart, shell=True, check=False, timeout=120)  # noqa: S602 - the operator's own command
                connections.close_all()

    def _roll(self, model: str) -> None:
        """Its definition changes in what the engine is started with."""
        raw = dict(self._world.model(model).raw)
        stored = next(d for d, _ in selectors.wanted() if d.name == model)
        raw["context_length"] = (stored.context_length or 8192) + 1024
        model_actions.change(definition=reading.read(raw), actor=ACTOR)

    def _kill_control_plane(self) -> None:
        self._control.kill_all()
        connections.close_all()
        self._pause(0.5)
        self._control.start(self._still)

    def _kill(self, component: str) -> None:
        dead = set(self._control.pids([component]))
        self._control.kill([component])
        self._until(lambda: bool(set(self._control.pids([component])) - dead), 15)

    def _until(self, check: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not check() and time.monotonic() < deadline:
            self._pause(0.1)
