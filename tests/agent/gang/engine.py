"""A distributed engine that stands in for real ones: rank 0 listens where the ranks meet, the others join it once, and
it serves when all have. Whoever misses another for a second and a half ends, as engines with collectives do.

`python engine.py RANK WORLD MEETING_HOST MEETING_PORT HOST PORT MODEL`
"""

from __future__ import annotations

import asyncio
import json
import sys

BEAT_S, SILENCE_S = 0.2, 1.5


async def lead(world: int, meet: tuple[str, int], serve: tuple[str, int], model: str) -> None:
    joined: set[int] = set()
    whole = asyncio.Event()

    async def member(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        if not line:  # somebody looked whether anybody listens
            writer.close()
            return
        rank = int(line)
        joined.add(rank)
        print(f"rank {rank} joined", flush=True)
        if len(joined) == world - 1:
            whole.set()
        await hold(reader, writer, f"rank {rank}")

    async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = json.dumps({"data": [{"id": model}]}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(member, *meet, reuse_address=True):
        print("waiting for the others", flush=True)
        await whole.wait()
        async with await asyncio.start_server(http, *serve, reuse_address=True) as server:
            print("serving", flush=True)
            await server.serve_forever()


async def join(rank: int, meet: tuple[str, int]) -> None:
    reader, writer = await asyncio.open_connection(*meet)  # once: who comes too early ends
    writer.write(b"%d\n" % rank)
    await hold(reader, writer, "the leader")


async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, other: str) -> None:
    async def beat() -> None:
        while True:
            writer.write(b".")
            await writer.drain()
            await asyncio.sleep(BEAT_S)

    beating = asyncio.create_task(beat())
    try:
        while True:
            async with asyncio.timeout(SILENCE_S):
                if not await reader.read(100):
                    break
    except (TimeoutError, OSError):
        pass
    beating.cancel()
    print(f"RuntimeError: {other} left", flush=True)
    sys.stdout.flush()
    import os

    os._exit(1)


def main() -> None:
    rank, world = int(sys.argv[1]), int(sys.argv[2])
    meet = (sys.argv[3], int(sys.argv[4]))
    if rank == 0:
        asyncio.run(lead(world, meet, (sys.argv[5], int(sys.argv[6])), sys.argv[7]))
    else:
        asyncio.run(join(rank, meet))


if __name__ == "__main__":
    main()
