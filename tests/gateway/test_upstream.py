"""What an upstream connection hands over within the read that brought it, and what it holds back."""

from __future__ import annotations

import asyncio

from gateway.edge.pool import Pool
from gateway.edge.upstream import Connection

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(word: bytes) -> bytes:
    """It ends as an event does: only behind such a one another is known without the parser."""
    return b"%x\r\n%b\n\r\n" % (len(word) + 1, word)


async def test_nothing_passes_by_what_a_caller_would_not_take() -> None:
    """Reads come before the caller has woken: they must lie behind what it has not passed on yet."""
    loop = asyncio.get_running_loop()
    connection = Connection(loop, Pool())
    connection.data_received(HEAD + chunk(b"first"))
    straight: list[bytes] = []
    taken: list[bytes] = []

    def passes(data: bytes) -> bool:
        straight.append(data)
        return data == chunk(b"usual")

    def takes(piece: bytes, _: bytes) -> bool:
        taken.append(piece)
        return piece != b"odd\n"

    poured = loop.create_task(connection.pour(takes, loop.time() + 10, passes))
    await asyncio.sleep(0)
    for word in (b"usual", b"other", b"odd", b"usual", b"last"):
        connection.data_received(chunk(word))
    assert await poured
    assert taken == [b"first\n", b"other\n", b"odd\n"]
    assert straight == [chunk(b"usual"), chunk(b"other"), chunk(b"odd")]
    assert await connection.read(loop.time() + 10) == b"usual\nlast\n"
