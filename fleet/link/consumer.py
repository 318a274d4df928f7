"""The conversation with one agent: hello, welcome or refused, one report, heartbeats; desired state goes down."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from typing import Any

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from uvicorn.protocols.utils import ClientDisconnected

from agent.wire import codec
from agent.wire.messages import (
    PROTOCOL,
    Answer,
    Certified,
    Certify,
    Heartbeat,
    Hello,
    Message,
    Refused,
    Report,
    Welcome,
)
from fleet.actions import certificates, observe
from fleet.link.protocol import HEARD_KEY, SCOPE_KEY, Heard, Peer
from fleet.link.sessions import Session, Sessions, essence
from fleet.link.telling import Telling
from llmgw.cluster.errors import Refusal

log = logging.getLogger(__name__)

HELLO_S = 20.0
"""How long a connection may stay without saying who it is. It has shown a certificate: what is late is one of the two
machines, and whoever is sent away for it comes again and makes it later still."""
REFUSED_CODE = 4403
MOST_CSR = 16_384


class AgentConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]  # channels has no types
    """One connection. Messages of one agent are taken in order, one at a time."""

    channel_layer_alias = "none"  # no layer: the link must go on when Redis is down (nudges come to `rounds`)
    sessions: Sessions
    link: str = ""

    def __init__(self, sessions: Sessions, link: str) -> None:
        super().__init__()
        self.sessions, self.link = sessions, link
        self.session: Session | None = None
        self._telling: Telling | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._store_id = ""
        self._over = False
        """Nothing is sent any more."""
        self._left = False
        """Its place is free."""

    async def dispatch(self, message: dict[str, Any]) -> None:
        # Not the base's: that one looks after database connections at every message, heartbeats too.
        handler = getattr(self, message["type"].replace(".", "_"), None)
        if handler is not None:
            await handler(message)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        except ClientDisconnected:
            log.info("%s left in the midst of a word", self._name())
        finally:  # also when what it said could not be taken in: its place must not stay taken
            if not self._left:
                await self.disconnect(1011)

    async def connect(self) -> None:
        await self.accept()
        loop = asyncio.get_running_loop()
        late = Refused("no_hello", f"no hello came within {HELLO_S:.0f} seconds", retry_s=5)
        self._deadline = loop.call_later(HELLO_S, lambda: loop.create_task(self.refuse(late)))

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self._over:
            return
        try:
            message = codec.decode(bytes_data if bytes_data is not None else text_data or "")
        except codec.UnknownMessage as e:
            log.info("%s sent %s, which is skipped", self._name(), e)
            return
        except codec.BadMessage as e:
            await self.refuse(Refused("bad_message", str(e), retry_s=30))
            return
        if self.session is None or self._telling is None:
            await self._hello(message)
            return
        match message:
            case Report():
                self._telling.report(message)
            case Heartbeat():
                self._heartbeat(self.session, self._telling, message)
            case Certify():
                self._renew(self.session, message)
            case Answer():
                waiting = self.session.answers.pop(message.id, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(message)
            case _:
                log.info("%s sent a %s, which is not for it to send", self._name(), type(message).__name__)

    async def disconnect(self, code: int) -> None:
        self._over = self._left = True
        if self._deadline is not None:
            self._deadline.cancel()
        if self.session is not None:
            self.sessions.remove(self.session)
            log.info("%s is gone (%s)", self._name(), code)

    async def refuse(self, refused: Refused) -> None:
        """Says why, and closes."""
        if self._over:
            return
        self._over = True
        log.warning("%s is refused: %s", self._name(), refused.sentence)
        with contextlib.suppress(ClientDisconnected):
            await self.send(bytes_data=codec.encode(refused))
            await self.close(REFUSED_CODE)

    async def tell(self, message: Message) -> None:
        """Sends a message, unless the connection is over."""
        if not self._over:
            with contextlib.suppress(ClientDisconnected):
                await self.send(bytes_data=codec.encode(message))

    async def _hello(self, message: Message) -> None:
        peer: Peer | None = self.scope.get(SCOPE_KEY)
        if not isinstance(message, Hello):
            await self.refuse(Refused("no_hello", f"the first message must be a hello, not a {type(message).__name__}"))
            return
        if peer is None:
            await self.refuse(Refused("no_certificate", "this connection showed no certificate"))
            return
        rival = self.sessions.rival(message.node_id, message.instance) if message.node_id == peer.common_name else None
        if rival is not None:
            await self.refuse(rival)
            return
        if self._deadline is not None:  # it has said who it is: how long the store takes is not its fault
            self._deadline.cancel()
        found = await self.sessions.admit((message, peer, self.link))
        if isinstance(found, Refused):
            await self.refuse(found)
            return
        if self._over:  # it left, or took too long, while the store was asked
            self.sessions.gone[message.node_id] = found.since
            return
        self._store_id = found.store_id
        session = self.session = Session(
            message.node_id,
            peer.serial,
            message.instance,
            self.tell,
            self.refuse,
            found.since,
            heard=self.scope.get(HEARD_KEY) or Heard(),
            settings=found.settings,
            settings_version=found.settings_version,
        )
        self._telling = Telling(
            functools.partial(self._write_report, session),
            functools.partial(self._write_news, session),
            self._unwritten,
        )
        self.sessions.add(session)
        log.info("%s is connected (agent %s)", message.node_id, message.agent_version or "of unknown version")
        told = found.settings
        await self.tell(Welcome(found.store_id, PROTOCOL, told.heartbeat_s, time.time(), told.settings))

    async def _write_report(self, session: Session, message: Report) -> None:
        if self._replaced(session):
            return
        session.told = essence(message.shards, message.generation)
        await self.sessions.report((session.node_id, message, self._store_id))
        session.reported = True
        session.settings_version = -1  # what it tells of itself may change what it is to be told
        self.sessions.figures.report(session.node_id, message.facts)
        self.sessions.look.set()

    def _heartbeat(self, session: Session, telling: Telling, message: Heartbeat) -> None:
        session.beat = observe.Beat(
            node_id=session.node_id,
            at=session.since,
            taken_generation=message.generation,
            memory_free_bytes=message.memory_free_bytes,
            disk_free_bytes=message.disk_free_bytes,
            load_1m=message.load_1m,
        )
        self.sessions.figures.heartbeat(session.node_id, message)
        if not telling.idle or essence(message.shards, message.generation) != session.told:
            telling.heartbeat(message)

    async def _write_news(self, session: Session, message: Heartbeat) -> None:
        told = essence(message.shards, message.generation)
        if told == session.told or not session.reported or self._replaced(session):
            return
        session.told = told  # at once: whoever wants the next one in whole may say so while this is written
        await self.sessions.news(observe.News(session.node_id, message.shards, message.generation))
        newer = self.sessions.get(session.node_id)
        if newer is not None and newer is not session:  # this may have been written over what that one told
            newer.told = None

    def _replaced(self, session: Session) -> bool:
        """A newer connection of its node tells newer things."""
        return self.sessions.get(session.node_id) not in (None, session)

    async def _unwritten(self, error: Exception) -> None:
        log.error("what %s told could not be written", self._name(), exc_info=error)
        if not self._over:
            self._over = True
            with contextlib.suppress(ClientDisconnected):
                await self.close(1011)

    def _renew(self, session: Session, message: Certify) -> None:
        """Beside the conversation, which goes on; who asks again meanwhile has his answer on the way."""
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._certify(session, message))

    async def _certify(self, session: Session, message: Certify) -> None:
        """The node's next certificate; where it is refused the present one goes on."""
        try:
            issued = await database_sync_to_async(certificates.renew)(
                node_id=session.node_id, csr=message.csr[:MOST_CSR], serial=session.serial
            )
        except Refusal as e:
            log.warning("%s gets no new certificate: %s", session.node_id, e)
            await self.tell(Certified(problem=str(e)))
            return
        log.info("%s has a new certificate, good until %s", session.node_id, issued.not_after.date())
        await self.tell(Certified(issued.pem))

    def _name(self) -> str:
        if self.session is not None:
            return self.session.node_id
        peer = self.scope.get(SCOPE_KEY)
        return peer.common_name if peer is not None else f"somebody at {(self.scope.get('client') or ['?'])[0]}"
