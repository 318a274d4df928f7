"""Clients of all kinds, each asking again and again: what they asked, and what they should not have got, by kind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter
from dataclasses import dataclass, field

from bench.edge import KEY
from bench.requests import MODEL, PACED

LARGE_BYTES = 4_000_000
KINDS: dict[str, tuple[int, float]] = {
    "whole": (8, 0.05),
    "stream": (16, 0.02),
    "leaves": (8, 0.05),
    "leaves early": (4, 0.05),
    "slow": (6, 0.2),
    "large": (2, 0.2),
    "retried": (4, 0.1),
    "refused": (1, 0.2),
    "reset": (1, 0.2),
    "cut": (2, 0.2),
    "reports": (2, 0.2),
    "no key": (1, 0.2),
}
"""How many of each at once, and seconds between their requests."""
FAILING = ("retried", "refused", "reset", "cut", "reports")
"""These ask for a model of their own: a breaker that they open must not meet the others."""
_ANSWERED = {"no key": (401,), "refused": (502, 503), "reset": (502, 503)} | dict.fromkeys(
    ("retried", "cut", "reports"), (200, 502, 503)
)


@dataclass
class Seen:
    """By kind."""

    asked: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    said: dict[str, str] = field(default_factory=dict)
    """The first that was wrong."""

    def fault(self, kind: str, what: str) -> None:
        self.wrong[kind] += 1
        self.said.setdefault(kind, what)


async def crowd(port: int, seen: Seen, stop: asyncio.Event, seed: int) -> None:
    """All of them, until `stop`; every connection is closed then."""
    rng = random.Random(seed)
    async with asyncio.TaskGroup() as group:
        for kind, (count, pause_s) in KINDS.items():
            for _ in range(count):
                group.create_task(_client(kind, pause_s, port, seen, stop, random.Random(rng.random())))


async def _client(kind: str, pause_s: float, port: int, seen: Seen, stop: asyncio.Event, rng: random.Random) -> None:
    request = _request(kind)
    while not stop.is_set():
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        try:
            for _ in range(rng.randint(1, 20)):  # then on a new connection
                seen.asked[kind] += 1
                writer.write(request)
                if not await _once(kind, reader, writer, seen, rng) or stop.is_set():
                    break
                await asyncio.sleep(rng.random() * 2 * pause_s)
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError) as e:
            seen.fault(kind, f"the connection broke: {e!r}")
        finally:
            writer.transport.abort() if kind.startswith("leaves") else writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def _once(
    kind: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen, rng: random.Random
) -> bool:
    """One answer; whether the connection is asked again."""
    await writer.drain()
    if kind == "leaves early":
        await asyncio.sleep(rng.random() * 0.01)
        return False
    async with asyncio.timeout(30):
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head[9:12])
        if status not in _ANSWERED.get(kind, (200,)):
            seen.fault(kind, f"it was answered {status}")
        if b"transfer-encoding: chunked" not in head:
            length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            return b"connection: close" not in head
        leaves_after = rng.randint(1, 20) if kind == "leaves" else 0
        events, last = 0, b""
        while size := int(await reader.readline(), 16):
            piece = (await reader.readexactly(size + 2))[:-2]
            events += piece.count(b"\n\n")
            last = piece
            if leaves_after and events >= leaves_after:
                return False
            if kind == "slow":
                await asyncio.sleep(0.01)
        await reader.readline()
    broken = b'"error"' in last
    if broken != (kind in ("cut", "reports")) or (not broken and not last.endswith(b"data: [DONE]\n\n")):
        seen.fault(kind, f"its stream ended with {last[-200:]!r}")
    return True


def _request(kind: str) -> bytes:
    said = "x" * LARGE_BYTES if kind == "large" else "Is it so?"
    mood = "stream" if kind.startswith("leaves") else "whole" if kind == "no key" else kind
    stream = kind in ("stream", "slow", "cut", "reports") or kind.startswith("leaves")
    chat = {
        "model": PACED if kind in FAILING else MODEL,
        "user": mood,
        "messages": [{"role": "user", "content": said}],
        "stream": stream,
    }
    body = json.dumps(chat, separators=(",", ":")).encode()
    key = "llmgw_nobody" if kind == "no key" else KEY
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
