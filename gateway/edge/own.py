"""Asking a model on the gateway's own account: one try, a whole answer or none, within a time."""

from __future__ import annotations

import time
import zlib
from typing import TYPE_CHECKING

from agent.wire.reason import Reason
from gateway.core import ids, router
from gateway.core.prefix import NOTHING
from gateway.edge.upstream import Connection, UpstreamError

if TYPE_CHECKING:
    from gateway.edge.app import Edge
    from gateway.edge.replicas import Replica

MOST_BYTES = 4 * 1024 * 1024


async def ask(edge: Edge, model: str, endpoint: str, body: bytes, within_s: float) -> bytes | None:
    """The body of a 200; None where the model is not there, not in the cluster, refuses, or takes longer. It is
    nobody's usage."""
    entry = edge.model(model)
    if entry is None or endpoint not in entry.kinds or entry.external is not None:
        return None  # what is asked here is somebody's words: they stay in the cluster
    deadline = edge.loop.time() + within_s
    now = time.monotonic()
    choice = edge.fleet.choose(entry.name, router.Ask(now, set(), NOTHING, None, "least_load"))
    if isinstance(choice, Reason):
        return None
    ticket = edge.fleet.begin(choice, NOTHING, now)
    try:
        answer = await _try(edge, choice.load, endpoint, body, deadline)
        if answer is None:
            ticket.failed(time.monotonic(), False)
        else:
            ticket.served(time.monotonic(), None, None)
        return answer
    finally:
        ticket.end()


async def _try(
    edge: Edge, replica: Replica, endpoint: str, body: bytes, deadline: float, again: bool = True
) -> bytes | None:
    connection: Connection | None = None
    try:
        connection = replica.pool.take(edge.loop.time()) or await replica.pool.connect(deadline - edge.loop.time())
        request_id = ids.request_id(int(time.time() * 1000), 0).encode()
        head = b"%bx-request-id: %b\r\ncontent-length: %d\r\n\r\n" % (replica.heads[endpoint], request_id, len(body))
        connection.send(head, body)
        if not await connection.head(deadline) or connection.status != 200:
            return None
        return await _body(connection, deadline)
    except UpstreamError as e:
        if not (e.stale and again):
            return None
    except (OSError, zlib.error):
        return None
    finally:
        if connection is not None:
            connection.release()
    return await _try(edge, replica, endpoint, body, deadline, again=False)


async def _body(connection: Connection, deadline: float) -> bytes | None:
    pieces: list[bytes] = []
    while (data := await connection.read(deadline)) != b"":
        if data is None or sum(map(len, pieces)) > MOST_BYTES:
            return None
        pieces.append(data)
    whole = b"".join(pieces)
    return zlib.decompress(whole, 47) if connection.header(b"content-encoding") == b"gzip" else whole
