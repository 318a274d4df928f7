"""A pretended engine: loads for as long as a real one would, listens on its port, answers at a real one's pace, and
fails as it is told to."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from agent.core.last_words import Exit
from agent.core.proc import Mark
from agent.core.readiness import Response
from agent.engine import MetricNames
from agent.node.host import Identity
from agent.rehearsal import answers, http
from agent.rehearsal.figures import Speed
from agent.wire.shard import ShardSpec

BEHAVIOURS = ("well", "hang", "slow", "garbage", "crash_loop")
"""How an engine is told to be. `hang`: it takes requests and never answers; `slow`: twenty times slower; `garbage`:
answers that are no HTTP and no JSON; `crash_loop`: it dies soon after each start."""
_SLOW = 20.0
_PIECE_S = 0.02
"""Tokens that come closer together than this go out together: a stream costs no more wake-ups than people can see."""
_OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of {:.2f} GiB"
)


class PretendedEngine:
    """One process of a shard (see `agent.node.host.Process`). `listens` False: a rank or a sidecar without HTTP."""

    def __init__(
        self,
        identity: Identity,
        mark: Mark,
        spec: ShardSpec,
        speed: Speed,
        names: MetricNames,
        *,
        host: str,
        log: Path,
        load_s: float,
        answer_speed: float,
        listens: bool,
        behaviour: str,
        memory_problem: str | None,
        answered: Callable[[], None],
        ended: Callable[[PretendedEngine], None],
    ) -> None:
        self.identity, self.mark, self.spec, self.speed = identity, mark, spec, speed
        self.behaviour = behaviour
        self.started = time.time()
        self._names, self._host, self._log = names, host, log
        self._load_s, self._answer_speed = load_s, answer_speed
        self._listens, self._memory_problem = listens, memory_problem
        self._answered, self._ended = answered, ended
        self.over: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self.loaded = not listens
        self.running = 0
        self.waiting = 0
        self.prompt_tokens = 0
        self.answer_tokens = 0
        self._slots = asyncio.Semaphore(max(1, spec.profile.parallel))
        self._talks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._meeting: asyncio.Server | None = None
        self._life = asyncio.create_task(self._live())

    async def ended(self) -> Exit:
        return await asyncio.shield(self.over)

    def end(self, how: Exit, *words: str) -> None:
        """The process is gone, at once: its port is closed, whoever talked with it is cut off."""
        if self.over.done():
            return
        if words:
            self._write(*words)
        self.over.set_result(how)
        for server in (self._server, self._meeting):
            if server is not None:
                server.close()
        for task in (*self._talks, self._life):
            if task is not asyncio.current_task():
                task.cancel()
        self._ended(self)

    def answer(self, path: str, key: str) -> Response | None:
        """A probe, without the way through the socket."""
        if self.over.done() or self.behaviour == "hang" or self._server is None:
            return None
        if key != self.spec.key and path != "/health":
            return Response(401)
        if path == "/health":
            return Response(200 if self.loaded else 503)
        if not self.loaded:
            return Response(503)
        return Response(200, json.dumps(self._models()).encode())

    def meets(self, port: int) -> bool:
        """Whether it waits there for the other ranks."""
        return self._meeting is not None and self.spec.gang is not None and self.spec.gang.port == port

    async def _live(self) -> None:
        self._write(f"pretended {self.spec.profile.engine}: {self.spec.model} on {len(self.spec.devices)} cards")
        if self._listens:
            try:
                self._server = await asyncio.start_server(self._accept, self._host, self.spec.port, backlog=512)
            except OSError as e:
                self.end(Exit(status=1), f"couldn't bind HTTP server socket: {e}")
                return
            gang = self.spec.gang
            if gang is not None and self.spec.rank == 0:  # where the workers wait for it
                self._meeting = await asyncio.start_server(_hang_up, self._host, gang.port)
        if self.behaviour == "crash_loop":
            await asyncio.sleep(min(self._load_s / 2, 0.5))
            self.end(Exit(status=1), "RuntimeError: told to die soon after each start")
            return
        await asyncio.sleep(self._load_s)
        if self._memory_problem is not None:
            self.end(Exit(status=1), self._memory_problem)
            return
        self.loaded = True
        self._write("ready")

    def _write(self, *lines: str) -> None:
        try:
            with self._log.open("a") as f:
                f.writelines(f"{line}\n" for line in lines)
        except OSError:
            return

    # HTTP

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._talks.add(task)
        try:
            await http.talk(reader, writer, self._handle)
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            self._talks.discard(task)

    async def _handle(self, request: http.Request, reply: http.Reply) -> None:
        if self.behaviour == "hang":
            await asyncio.Event().wait()
        if self.behaviour == "garbage" and request.path.startswith("/v1/") and request.method == "POST":
            reply.raw(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n\x00{not: json]]"
            )
            return
        if request.path == "/health":
            reply.json(200 if self.loaded else 503, {"status": "ok" if self.loaded else "loading model"})
        elif request.headers.get("authorization") != f"Bearer {self.spec.key}":
            reply.json(401, {"error": {"message": "Invalid API key", "type": "authentication_error", "code": 401}})
        elif request.path == "/metrics":
            reply.whole(200, self._metrics(), "text/plain; version=0.0.4")
        elif not self.loaded:
            reply.json(503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}})
        elif request.path == "/v1/models":
            reply.json(200, self._models())
        elif request.path.startswith("/v1/models/"):
            self._one_model(request.path.removeprefix("/v1/models/"), reply)
        elif request.path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings"):
            await self._work(request, reply)
        else:
            reply.json(404, {"error": {"message": "File Not Found", "type": "not_found_error", "code": 404}})

    def _one_model(self, name: str, reply: http.Reply) -> None:
        if unquote(name) == self.spec.model:
            reply.json(200, self._models()["data"][0])
        else:
            what = {"message": f"The model `{name[:80]}` does not exist.", "type": "NotFoundError", "code": 404}
            reply.json(404, {"error": what})

    async def _work(self, request: http.Request, reply: http.Reply) -> None:
        if request.method != "POST":
            reply.json(405, {"error": {"message": "Method Not Allowed", "type": "invalid_request_error", "code": 405}})
            return
        try:
            if request.path == "/v1/embeddings":
                reply.json(200, answers.embeddings(request.body, self.spec.model))
                return
            asked = answers.read(request.path, request.body, self.spec.model, self.spec.profile.context_length)
        except answers.Refused as e:
            reply.json(e.status, e.body())
            return
        self.waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self.waiting -= 1
        self.running += 1
        try:
            await self._write_answer(asked, reply)
            self._answered()
        finally:
            self.running -= 1
            self._slots.release()

    async def _write_answer(self, asked: answers.Asked, reply: http.Reply) -> None:
        id_, at = f"pretended-{time.monotonic_ns():x}", int(time.time())
        await self._pass(asked.prompt_tokens * self.speed.prompt_token_s)
        self.prompt_tokens += asked.prompt_tokens
        written = 0
        if asked.stream:
            reply.begin()
            self._say(reply, answers.opening(asked, id_, at))
        while written < len(asked.words):
            step_s = self._step_s()
            count = min(max(1, int(_PIECE_S / step_s)), len(asked.words) - written)
            await asyncio.sleep(step_s * count)
            if asked.stream:
                for number in range(written, written + count):
                    self._say(reply, answers.piece(asked, id_, at, number))
                await reply.drain()
            written += count
            self.answer_tokens += count
        if asked.stream:
            self._say(reply, answers.closing(asked, id_, at))
            reply.finish()
        else:
            reply.json(200, answers.whole(asked, id_, at))

    @staticmethod
    def _say(reply: http.Reply, events: object) -> None:
        for event in events:  # type: ignore[attr-defined]
            reply.piece(event + b"\n\n")

    def _step_s(self) -> float:
        return self.speed.step(self.running) / self._answer_speed * self._slowness

    async def _pass(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._answer_speed * self._slowness)

    @property
    def _slowness(self) -> float:
        return _SLOW if self.behaviour == "slow" else 1.0

    def _models(self) -> dict[str, Any]:
        length = self.spec.profile.context_length
        one = {"id": self.spec.model, "object": "model", "created": int(self.started), "owned_by": "pretended"}
        return {"object": "list", "data": [one | ({"max_model_len": length} if length else {})]}

    def _metrics(self) -> bytes:
        """Under the names that the engine which it pretends to be has for them."""
        figures = (
            (self._names.running, self.running),
            (self._names.waiting, self.waiting),
            (self._names.kv_cache_usage, self.running / max(1, self.spec.profile.parallel)),
            (self._names.prompt_tokens_total, self.prompt_tokens),
            (self._names.completion_tokens_total, self.answer_tokens),
        )
        return "".join(f"{name} {value}\n" for name, value in figures if name).encode()


async def _hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


def out_of_memory(card_bytes: int) -> str:
    return _OOM.format(card_bytes / 2**30)
