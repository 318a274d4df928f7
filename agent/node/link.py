"""The one connection that a node has: it dials the control plane, over mutual TLS, and speaks `agent.wire`."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from typing import Protocol
from urllib.parse import urlsplit

from agent.node.settings import Settings
from agent.wire.codec import MAX_BYTES, BadMessage, UnknownMessage, decode, encode
from agent.wire.messages import Message

_REACH_S = 10.0
"""For a TCP connection, which needs nothing but a network and a machine."""
_OPEN_S = 60.0
"""For TLS and the websocket after it, which take their turn: where a fleet comes at once, whoever leaves the line makes
it longer, since what was done for him is done again."""
_PORT = 443
_CLOSE_S = 1.0
_PING_S = 10.0


class LinkLost(Exception):
    """The connection could not be made, or is over; the sentence says why and what to look at."""


class Connection(Protocol):
    @property
    def local_address(self) -> str | None:
        """Of this node, as it was seen on the way to the control plane."""
        ...

    async def send(self, message: Message) -> None:
        """Raises `LinkLost`."""
        ...

    async def receive(self) -> Message:
        """The next message that this version understands. Raises `LinkLost`."""
        ...

    async def close(self) -> None: ...


class Link(Protocol):
    async def dial(self) -> Connection:
        """Raises `LinkLost`."""
        ...


class WebsocketLink:
    """See `Link`."""

    def __init__(self, settings: Settings, skipped: Callable[[str], None]) -> None:
        self._settings = settings
        self._skipped = skipped

    async def dial(self) -> Connection:
        from websockets.asyncio.client import connect

        try:
            context = _tls(self._settings)
            where = urlsplit(self._settings.server)
            host = where.hostname or ""
            opened = await connect(
                self._settings.server,
                sock=await _reached(host, where.port or _PORT),
                ssl=context,
                server_hostname=self._settings.tls.server_name or host,
                max_size=MAX_BYTES,
                open_timeout=_OPEN_S,
                close_timeout=_CLOSE_S,
                ping_interval=_PING_S,
                ping_timeout=2 * _PING_S,
                compression=None,
                proxy=None,
            )
        except Exception as e:
            raise LinkLost(explain(e, self._settings)) from e
        return _Websocket(opened, self._settings, self._skipped)


class _Websocket:
    def __init__(self, socket: object, settings: Settings, skipped: Callable[[str], None]) -> None:
        from websockets.asyncio.client import ClientConnection

        assert isinstance(socket, ClientConnection)
        self._socket = socket
        self._settings = settings
        self._skipped = skipped

    @property
    def local_address(self) -> str | None:
        found = self._socket.local_address
        return str(found[0]) if found else None

    async def send(self, message: Message) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            await self._socket.send(encode(message).decode())
        except ConnectionClosed as e:
            raise LinkLost(explain(e, self._settings)) from e

    async def receive(self) -> Message:
        from websockets.exceptions import ConnectionClosed

        while True:
            try:
                data = await self._socket.recv()
            except ConnectionClosed as e:
                raise LinkLost(explain(e, self._settings)) from e
            try:
                return decode(data)
            except UnknownMessage as e:
                self._skipped(f"skipped: {e}")
            except BadMessage as e:
                self._skipped(f"skipped: {e}")

    async def close(self) -> None:
        await self._socket.close()


async def _reached(host: str, port: int) -> socket.socket:
    """A TCP connection to the first of its addresses that answers. Raises `OSError`, `LinkLost`."""
    loop = asyncio.get_running_loop()
    problem: Exception | None = None
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        try:
            async with asyncio.timeout(_REACH_S):
                await loop.sock_connect(made, address)
            return made
        except TimeoutError:
            made.close()
            problem = LinkLost(f"{host}:{port} cannot be reached: no answer within {_REACH_S:g} s")
        except BaseException as e:
            made.close()
            if not isinstance(e, OSError):
                raise
            problem = e
    raise problem or LinkLost(f"{host} has no address")


def _tls(settings: Settings) -> ssl.SSLContext:
    tls = settings.tls
    for path, what in ((tls.ca, "authority"), (tls.cert, "certificate"), (tls.key, "key")):
        if not path.exists():
            raise LinkLost(f"the {what} {path} does not exist; join the cluster (llmgw-agent join CODE)")
    context = ssl.create_default_context(cafile=str(tls.ca))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(tls.cert, tls.key)
    return context


def explain(error: BaseException, settings: Settings) -> str:
    """What went wrong with the connection, and what it usually means."""
    where = settings.server
    for e in _chain(error):
        if isinstance(e, LinkLost):
            return str(e)
        if isinstance(e, ssl.SSLCertVerificationError):
            if e.verify_code in _BY_THE_CLOCK:
                return (
                    f"{where} is not trusted: {e.verify_message}, by this node's clock, which says {_today()}; "
                    "set the clock right, or have the control plane's certificate renewed"
                )
            return (
                f"{where} is not trusted: {e.verify_message or e}; its certificate must come from the authority in "
                f"{settings.tls.ca} and name the address that is dialled"
            )
        if isinstance(e, ssl.SSLError):
            told = _ALERTS.get(_alert(e))
            if told is not None:
                return f"{where} refused this node's certificate: {told}"
            return f"TLS with {where} failed: {e.reason or e}"
        if isinstance(e, ConnectionRefusedError):
            return f"nothing listens on {where}"
        if isinstance(e, TimeoutError):
            return f"{where} did not answer within {_OPEN_S:g} s"
    return _closed(error, where)


_BY_THE_CLOCK = (9, 10)
"""OpenSSL's: a certificate that is not yet valid, and one that has expired."""


def _today() -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())


_ALERTS = {
    "CERTIFICATE_REQUIRED": "it wants one, and none was sent",
    "HANDSHAKE_FAILURE": "it wants one that it accepts",
    "UNKNOWN_CA": "another authority issued it; join the cluster again (llmgw-agent join CODE)",
    "CERTIFICATE_REVOKED": "it was revoked; join the cluster again (llmgw-agent join CODE)",
    "CERTIFICATE_EXPIRED": "it has expired; join the cluster again (llmgw-agent join CODE)",
    "BAD_CERTIFICATE": "it cannot be read there",
    "UNSUPPORTED_CERTIFICATE": "it is not meant for a client",
    "ACCESS_DENIED": "it may not come in",
}


def _alert(error: ssl.SSLError) -> str:
    reason = (error.reason or "").upper().replace(" ", "_")
    return next((name for name in _ALERTS if reason.endswith(name)), reason)


def _closed(error: BaseException, where: str) -> str:
    name = type(error).__name__
    if name == "InvalidStatus":
        status = getattr(getattr(error, "response", None), "status_code", "?")
        return f"{where} answered with HTTP {status}: is that the agents' port and path?"
    if name in ("InvalidMessage", "ConnectionResetError", "EOFError", "ConnectionAbortedError"):
        # Under TLS 1.3 a server refuses a client's certificate after the client thinks itself connected.
        return (
            f"{where} closed the connection at once: usually it refused this node's certificate "
            "(revoked, expired, or of another authority)"
        )
    received = getattr(error, "rcvd", None)
    if received is not None:
        said = f" ({received.reason})" if received.reason else ""
        return f"{where} closed the connection with code {received.code}{said}"
    if isinstance(error, OSError) and error.strerror:
        return f"{where} cannot be reached: {error.strerror}"
    return f"the connection to {where} was lost: {name}{f': {error}' if str(error) else ''}"


def _chain(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in found:
        found.append(one)
        one = one.__cause__ or one.__context__
    return found
