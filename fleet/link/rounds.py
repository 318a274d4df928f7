"""What the link does each second, and at once when it is nudged: sends desired states that moved, closes what was
revoked or removed, looks after nodes that are gone or heard again. A round that fails is logged and comes again; one
that is late makes nobody silent (`fleet.link.hearing`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import redis.asyncio
import redis.exceptions
from channels.db import database_sync_to_async
from django.db import transaction
from django.utils import timezone

from agent.wire import codec
from agent.wire.messages import Desired, Message, Question, Refused
from fleet import models, questions
from fleet.actions import observe
from fleet.core import agents
from fleet.core.hearing import LEASE_S
from fleet.link import orders
from fleet.link.sessions import Session, Sessions
from fleet.nudges import CHANNEL
from fleet.selectors.world import about
from llmgw.cluster import leases
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.core import settings as core_settings

log = logging.getLogger(__name__)

PERIOD_S = 1.0
SEND_S = 3.0
"""For one message to an agent: one that does not read must not hold up the others."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What a round's visit to the store found."""

    positions: dict[str, orders.Position]
    revoked: set[str]
    settings_version: int
    settings: dict[str, Any]


class Rounds:
    """The link's own work beside its conversations."""

    def __init__(self, sessions: Sessions, link: str, holder: str, store_id: str) -> None:
        self.sessions, self.link, self.holder, self.store_id = sessions, link, holder, store_id
        self._revoked_at = timezone.now()
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self) -> None:
        """Takes the lease: from now on this process is the one that hears the fleet."""
        leases.take(self.link, self.holder, LEASE_S)
        models.Node.objects.filter(link=self.link, connected=True).update(connected=False)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.round()
            except asyncio.CancelledError:
                raise
            except Exception:  # the process's outermost loop: the store may be away; the next round may succeed
                log.exception("a round of the link failed; it comes again")
                await asyncio.sleep(PERIOD_S)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.sessions.look.wait(), PERIOD_S)
            self.sessions.look.clear()

    async def round(self) -> None:
        spoke, self.sessions.spoke = self.sessions.spoke, set()
        gone = {n: since for n, since in self.sessions.gone.items() if self.sessions.get(n) is None}
        held = list(self.sessions)  # before the store is read: whoever comes later has its turn in the next round
        await self.sessions.free.wait()
        found = await database_sync_to_async(self._store)(spoke, gone)
        for node, since in gone.items():
            if self.sessions.gone.get(node) == since:
                del self.sessions.gone[node]
        moved: dict[str, Session] = {}
        for session in held:
            where = found.positions.get(session.node_id)
            if session.serial in found.revoked:
                sentence = f"the certificate {session.serial} of {session.node_id} was revoked"
                await self._refuse(session, Refused("certificate_revoked", sentence))
            elif where is None:
                await self._refuse(session, Refused("unknown_node", f"the node {session.node_id} was removed"))
            elif session.reported and session.sent != (where.term, where.generation, where.settled):
                moved[session.node_id] = session
        behind = [s for s in held if s.settings_version != found.settings_version or s.node_id in moved]
        await self._tell_settings(behind, found)
        if moved:
            await self._send(moved, found.positions)

    async def finish(self) -> None:
        """The last writes of a link that stops in order."""
        gone = {s.node_id: s.since for s in self.sessions} | self.sessions.gone
        await database_sync_to_async(self._store)(set(), gone)
        await database_sync_to_async(leases.take)(self.link, "", 0)

    async def listen(self, url: str) -> None:
        """Nudges and questions by Redis, for as long as it is there; without it the rounds alone do the work."""
        while True:
            try:
                async with redis.asyncio.Redis.from_url(url) as client, client.pubsub() as channel:
                    await channel.subscribe(CHANNEL)
                    async for message in channel.listen():
                        if message["type"] == "message":
                            self._heard(message["data"], client)
            except (redis.exceptions.RedisError, OSError) as e:
                log.debug("no nudges for a moment: %s", e)
                await asyncio.sleep(0.5)

    def _store(self, spoke: set[str], gone: dict[str, datetime]) -> _Found:
        """The round's visit to the store."""
        if spoke:
            observe.found_again(spoke)
        if gone:
            with transaction.atomic():
                # A node that came back meanwhile has a newer connection in its row, which this is not the end of.
                ended = models.Node.objects.filter(node_id__in=gone, connected_at__in=set(gone.values()))
                ended.filter(link=self.link).update(connected=False)
        now = timezone.now()
        rows = models.Certificate.objects.filter(revoked_at__gte=self._revoked_at - timedelta(seconds=10))
        revoked = set(rows.values_list("serial", flat=True))
        found = _Found(orders.positions(self.link), revoked, *cluster_settings.current())
        self._revoked_at = now
        return found

    async def _send(self, moved: dict[str, Session], positions: Mapping[str, orders.Position]) -> None:
        """What is sent is as new as the store; what is noted as sent is what this round looked at, so that a change
        in between brings another round, and with it the settings that were told before it."""
        states = await database_sync_to_async(orders.desired_states)(list(moved), self.store_id)

        async def one(session: Session, state: Desired) -> None:
            if await _sent(session, state):
                where = positions[session.node_id]
                session.sent = (where.term, where.generation, where.settled)
                session.told = None  # take the next heartbeat in whole: rows have moved under it

        await asyncio.gather(*(one(moved[node], state) for node, state in states.items()))

    async def _tell_settings(self, behind: list[Session], found: _Found) -> None:
        """Those of whom the cluster's settings say something else than they were told."""
        if not behind:
            return
        settings = core_settings.read(found.settings)
        known = await database_sync_to_async(_about)([s.node_id for s in behind])

        async def one(session: Session) -> None:
            told = agents.told(settings, session.node_id, known.get(session.node_id))
            if told == session.settings or await _sent(session, told):
                session.settings, session.settings_version = told, found.settings_version

        await asyncio.gather(*(one(session) for session in behind if session.reported))

    async def _refuse(self, session: Session, refused: Refused) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(session.refuse(refused), SEND_S)

    def _heard(self, data: bytes, client: redis.asyncio.Redis) -> None:
        try:
            message: dict[str, Any] = json.loads(data)
        except ValueError:
            return
        if "nudge" in message:
            self.sessions.look.set()
        elif (session := self.sessions.get(str(message.get("node")))) is not None:
            task = asyncio.get_running_loop().create_task(self._ask(session, message, client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _ask(self, session: Session, message: dict[str, Any], client: redis.asyncio.Redis) -> None:
        """Passes a question on, and its answer back to whoever waits at the reply key."""
        question = Question(str(message["id"]), str(message["kind"]), dict(message.get("args") or {}))
        waiting = session.answers[question.id] = asyncio.get_running_loop().create_future()
        try:
            await session.send(question)
            answer = await asyncio.wait_for(waiting, float(message.get("timeout_s", 5)))
        except (TimeoutError, asyncio.CancelledError):
            return  # whoever asked has its own time-out
        finally:
            session.answers.pop(question.id, None)
        key = questions.reply_key(question.id)
        with contextlib.suppress(redis.exceptions.RedisError, OSError):
            await client.rpush(key, questions.encode(answer))
            await client.expire(key, 30)


def _about(nodes: list[str]) -> dict[str, agents.About | None]:
    return about(models.Node.objects.filter(node_id__in=nodes))


async def _sent(session: Session, message: Message) -> bool:
    """False: it does not read; it is told again in the next round, until its pings run out."""
    try:
        await asyncio.wait_for(session.send(message), SEND_S)
    except TimeoutError:
        log.warning("%s does not read what it is sent", session.node_id)
        return False
    except codec.BadMessage as e:
        log.error("%s cannot be told: %s", session.node_id, e)
        return False
    return True
