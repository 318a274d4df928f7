"""The agent: keeps the link, brings the node to its desired state, tells what it observes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from agent.core import cards, options
from agent.core.backoff import HOPELESS_S, delay_s
from agent.core.options import Options
from agent.node import discovery
from agent.node.context import Context
from agent.node.discovery import Surroundings
from agent.node.edits import Edits
from agent.node.examination import Noted
from agent.node.install.installer import Installer, Ways
from agent.node.link import Connection, Link, LinkLost
from agent.node.orders import Orders
from agent.node.questions import Questions
from agent.node.renewal import Renewal
from agent.node.supervisor import Supervisor
from agent.node.this_machine import have
from agent.wire.facts import NodeFacts
from agent.wire.messages import (
    Answer,
    Certified,
    Desired,
    Heartbeat,
    Hello,
    Message,
    Question,
    Refused,
    Report,
    Settings,
    Welcome,
)

_log = logging.getLogger("llmgw.agent")

_WELCOME_S = 60.0
"""A thousand nodes may greet at once."""
_STEADY_S = 5.0
"""A connection that lasted this long counts as a success, and the next failure as the first."""
_FACTS_EVERY_S = 30.0
_MEASURE_EVERY_S = 3.0
_MEASURE_CARDS_EVERY_S = 5.0
_LOCALHOST = "127.0.0.1"
_OUT = ("certificate_revoked", "unknown_node")
"""Refusals that say that this node is no longer one of the cluster's."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the agent says it is. `instance` is random a process."""

    node_id: str
    instance: str
    address: str | None = None
    """Where its engines listen; None: the address that the link goes out from."""


class Turned(Exception):
    """The control plane refused this node."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.sentence)
        self.refused = refused


class Agent:
    """Everything it works with comes from outside."""

    def __init__(
        self,
        ctx: Context,
        identity: Identity,
        link: Link,
        surroundings: Surroundings,
        edits: Edits | None = None,
        renewal: Renewal | None = None,
        jitter: Callable[[], float] = random.random,
        ways: Ways | None = None,
    ) -> None:
        self._ctx = ctx
        self._identity = identity
        self._link = link
        self._surroundings = surroundings
        self._edits = edits
        self._renewal = renewal
        self._installer = (
            None if ways is None else Installer(ways, self._latest_facts, have, self._told_engines, ctx.tracing)
        )
        """None: nothing is installed on this node."""
        self._link_told: tuple[str, str | None, str | None] = ("unknown", None, None)
        self._jitter = jitter
        self._changed = asyncio.Event()
        self._changed_for_link = asyncio.Event()
        self._told = NodeFacts()
        self.supervisor = Supervisor(ctx, self._changed.set, telling=True)
        self._orders = Orders(ctx, self.supervisor)
        self._address = identity.address
        self._options = Options()
        self._obeyed = asyncio.Event()
        """Set: there are new ones, which facts may show."""
        self._rdma_active: tuple[bool | None, ...] | None = None
        self.server_skew_s: float | None = None
        """The control plane's clock less this node's, at the last welcome."""
        self._questions = Questions(ctx, self.supervisor, self._latest_facts, self._noted, edits)

    async def run(self) -> None:
        """Until it is cancelled, or is to start again on other settings. Engines are left as they are then."""
        await self.supervisor.recover()
        await self.supervisor.settled(1.0)
        kept_address = self._orders.begin_with_kept()
        self._address = self._address or kept_address
        self._converge()
        works = [self._dial(), self._converge_on_change(), self._measure(), self._measure_cards()]
        if self._edits is not None:
            works.append(self._edits.edited(self._tell_edit))
        if self._installer is not None:
            works.append(self._installer.run())
        tasks = [asyncio.create_task(work) for work in works]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            self.supervisor.leave()
            self._tell("stopped")

    # The link

    async def _dial(self) -> None:
        failures = 0
        while True:
            began = self._ctx.clock.monotonic()
            wait_s: float | None = None
            try:
                connection = await self._link.dial()
                try:
                    await self._talk(connection)
                finally:
                    with contextlib.suppress(LinkLost, OSError):
                        await connection.close()
            except Turned as e:
                told = str(e)
                if e.refused.code in _OUT:
                    self._orders.leave(told)
                wait_s = HOPELESS_S if e.refused.retry_s is None else max(0.1, e.refused.retry_s)
                self._tell("refused", told, e.refused.code)
            except LinkLost as e:
                told = str(e)
                self._tell("disconnected", told)
            if self._ctx.clock.monotonic() - began >= _STEADY_S:
                failures = 0
            failures += 1
            wait_s = delay_s(failures, self._jitter()) if wait_s is None else wait_s * (1 + self._jitter() / 2)
            _log.warning("%s; next try in %.1f s", told, wait_s)
            await asyncio.sleep(wait_s)

    async def _talk(self, connection: Connection) -> None:
        await connection.send(
            Hello(
                node_id=self._identity.node_id,
                agent_version=discovery.version(),
                boot_id=self._ctx.host.boot_id(),
                instance=self._identity.instance,
            )
        )
        try:
            async with asyncio.timeout(_WELCOME_S):
                welcome = await self._answer_to_hello(connection)
        except TimeoutError:
            raise LinkLost(f"the control plane did not answer the greeting within {_WELCOME_S:g} s") from None
        self._obey(welcome)
        if welcome.server_time is not None:
            self.server_skew_s = welcome.server_time - self._ctx.clock.wall()
        self._address = self._identity.address or connection.local_address or _LOCALHOST
        report = await self._report()
        await connection.send(report)
        self.supervisor.told(report.shards)
        self._tell("connected")
        _log.info("connected; this node's engines listen on %s", self._address)
        works = [self._listen(connection), self._heartbeats(connection), self._facts(connection)]
        if self._renewal is not None:
            works.append(self._renewal.keep(connection.send, self._server_now, self._tell_again, self._jitter))
        tasks = [asyncio.create_task(work) for work in works]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer_to_hello(self, connection: Connection) -> Welcome:
        while True:
            match await connection.receive():
                case Welcome() as welcome:
                    return welcome
                case Refused() as refused:
                    raise Turned(refused)
                case _:
                    continue

    async def _listen(self, connection: Connection) -> None:
        answering: set[asyncio.Task[None]] = set()
        try:
            while True:
                message: Message = await connection.receive()
                match message:
                    case Desired():
                        self._take(message)
                    case Settings():
                        self._obey(message)
                        self._changed_for_link.set()
                    case Question():
                        if len(answering) < 4:  # bounded; a lost question is asked again
                            task = asyncio.create_task(self._answer(connection, message))
                            answering.add(task)
                            task.add_done_callback(answering.discard)
                    case Certified():
                        if self._renewal is not None:
                            self._renewal.answered(message)
                    case Refused():
                        raise Turned(message)
                    case _:
                        continue
        finally:
            for task in answering:
                task.cancel()

    async def _answer(self, connection: Connection, question: Question) -> None:
        answer: Answer = await self._questions.answer(question)
        with contextlib.suppress(LinkLost):
            await connection.send(answer)

    async def _facts(self, connection: Connection) -> None:
        """A report whenever facts have changed. Apart from heartbeats: a driver that hangs must not silence them."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FACTS_EVERY_S):
                    await self._obeyed.wait()
            self._obeyed.clear()
            before = self._told
            report = await self._report()
            if cards.lasting(report.facts) != cards.lasting(before):
                await connection.send(report)

    async def _heartbeats(self, connection: Connection) -> None:
        while True:
            self._changed_for_link.clear()
            moving = self._surroundings.moving()
            if moving.rdma_active != self._rdma_active:
                self._rdma_active = moving.rdma_active
                self._obeyed.set()
            shards = self.supervisor.observed()
            await connection.send(
                Heartbeat(
                    shards=shards,
                    generation=self._orders.generation,
                    memory_free_bytes=moving.memory_free_bytes,
                    disk_free_bytes=moving.disk_free_bytes,
                    load_1m=moving.load_1m,
                    gpus=moving.gpus,
                )
            )
            self.supervisor.told(shards)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._options.heartbeat_s):
                    await self._changed_for_link.wait()
                    await asyncio.sleep(0.01)  # several changes at once are one message

    def _obey(self, message: Welcome | Settings) -> None:
        """The cluster's settings for this agent; what does not fit is left out."""
        self._obeyed.set()
        self._options, problems = options.read(message.heartbeat_s, message.settings)
        for problem in problems:
            _log.warning("a setting of the cluster for this agent is left out: %s", problem)
        if self._installer is not None:
            self._installer.told(self._options)

    def _told_engines(self) -> None:
        self._obeyed.set()

    # The state

    def _take(self, desired: Desired) -> None:
        if not self._orders.take(desired, self._address or _LOCALHOST):
            return
        # At once: a heartbeat that names this order must not come before what the order began.
        self._converge()
        self._changed.set()

    async def _converge_on_change(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            self._converge()
            self._changed_for_link.set()
            if await self._orders.drop_unwanted():
                self._obeyed.set()

    def _converge(self) -> None:
        self.supervisor.converge(self._orders.desired, self._address or _LOCALHOST)

    async def _measure(self) -> None:
        while True:
            await asyncio.sleep(_MEASURE_EVERY_S)
            self.supervisor.measure()

    async def _measure_cards(self) -> None:
        """Apart: a driver that hangs holds up nothing else."""
        while True:
            await asyncio.sleep(_MEASURE_CARDS_EVERY_S)
            await self.supervisor.measure_cards()

    async def _report(self) -> Report:
        self._told = await asyncio.to_thread(self._latest_facts)
        return Report(
            facts=self._told,
            shards=self.supervisor.observed(),
            generation=self._orders.generation,
            store_id=self._orders.store_id,
        )

    def _latest_facts(self) -> NodeFacts:
        ports = [h.port for h in self.supervisor.held() if h.lives]
        found = self._surroundings.facts(self._address, ports)
        if self._options.labels:
            found = replace(found, labels={**(found.labels or {}), **self._options.labels})
        if found.weights is not None:
            found = replace(found, weights=tuple(sorted({*found.weights, *self.supervisor.loaded()})))
        return replace(found, ranks=self.supervisor.ranks() or None)

    def _tell(self, state: str, problem: str | None = None, code: str | None = None) -> None:
        """What `llmgw-agent status` shows."""
        self._link_told = (state, problem, code)
        body: dict[str, Any] = {
            "state": state,
            "problem": problem,
            "code": code,
            "at": self._ctx.clock.wall(),
            "settings_problem": self._edits.problem if self._edits is not None else None,
            "skew_s": self.server_skew_s,
            "renewal_problem": self._renewal.problem if self._renewal is not None else None,
        }
        try:
            self._ctx.home.status.write_bytes(msgspec.json.encode(body))
        except OSError as e:
            _log.info("the status could not be written: %s", e)

    def _tell_again(self) -> None:
        self._tell(*self._link_told)

    def _server_now(self) -> float:
        return self._ctx.clock.wall() + (self.server_skew_s or 0.0)

    def _noted(self) -> Noted:
        return Noted(self.server_skew_s, self._renewal.problem if self._renewal is not None else None)

    def _tell_edit(self) -> None:
        assert self._edits is not None
        if self._edits.problem is not None:
            _log.error("%s", self._edits.problem)
        else:
            _log.info("%s can be used again", self._ctx.home.settings)
        self._tell_again()
