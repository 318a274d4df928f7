"""Requests through the rehearsal's gateway, at a steady rate, whole and streamed; which were answered is remembered."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from dataclasses import dataclass, field

from llmgw.rehearsal.worldfile import Traffic

_LOOKS_S = 60.0


@dataclass
class Told:
    """What came of the requests. `ids`: those with an answer that a client could use, by the gateway's id."""

    ids: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    ttft_s: list[float] = field(default_factory=list)


class Clients:
    """`with Clients(...) as clients`: they ask until the end of the block."""

    def __init__(self, traffic: Traffic, host: str, port: int, key: str, seed: int = 0) -> None:
        self._traffic, self._host, self._port, self._key = traffic, host, port, key
        self._dice = random.Random(seed)  # noqa: S311 - load, not secrets
        self.told = Told()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._due = time.monotonic()
        # One that waits for an answer must not keep the others from asking.
        count = max(2, min(64, int(traffic.rate * 4)))
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(count)]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(_LOOKS_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            with self._lock:
                wait_s = max(0.0, self._due - time.monotonic())
                self._due = max(self._due, time.monotonic()) + 1 / self._traffic.rate
                model = self._dice.choice(self._traffic.models)
                stream = self._dice.random() < self._traffic.streamed
                salt = self._dice.randrange(10**9)
            if self._stop.wait(wait_s):
                return
            self._ask(model, stream, salt)

    def _ask(self, model: str, stream: bool, salt: int) -> None:
        prompt = f"{salt} " + "word " * max(1, self._traffic.prompt_tokens * 4 // 5)
        body = {
            "model": model,
            "stream": stream,
            "max_tokens": self._traffic.answer_tokens,
            "messages": [{"role": "user", "content": prompt}],
        }
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_LOOKS_S)
        began = time.monotonic()
        try:
            headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            first = answer.read(1)
            ttft_s = time.monotonic() - began
            text = (first + answer.read()).decode(errors="replace")
        except (OSError, http.client.HTTPException) as e:
            self.told.failed.append(type(e).__name__)
            self._stop.wait(0.1)
            return
        finally:
            connection.close()
        whole = answer.status == 200 and ("[DONE]" in text if stream else True) and '"error"' not in text
        if whole and (request_id := answer.headers.get("x-request-id")):
            self.told.ids.append(request_id)
            self.told.ttft_s.append(ttft_s)
        else:
            self.told.failed.append(f"{answer.status} {text[-160:]}")
            self._stop.wait(0.1)
