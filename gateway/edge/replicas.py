"""The replicas that this edge knows, kept across snapshots: their loads, connections, and what each has read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from agent.wire.reason import Reason
from gateway.core import router
from gateway.core.load import Load, Ticket, Turn
from gateway.core.prefix import NOTHING, Prefixes, Text
from gateway.core.request import PATHS
from gateway.core.snapshot import Endpoint, Endpoints
from gateway.edge.pool import Pool
from llmgw.keys import engine_key


class Replica(Load):
    """One endpoint as this process uses it."""

    __slots__ = ("heads", "label", "metrics_head", "pool")

    def __init__(self, endpoint: Endpoint, secret: str) -> None:
        super().__init__(endpoint)
        self.pool = Pool(endpoint.host, endpoint.port)
        self.label = endpoint.replica.encode()
        self.heads = {kind: self._head(path, secret) for path, kind in PATHS.items()}
        self.metrics_head = self._address(secret)
        """What follows the first line of a request for the engine's own metrics."""

    def _address(self, secret: str) -> bytes:
        host = f"[{self.endpoint.host}]" if ":" in self.endpoint.host else self.endpoint.host
        key = engine_key(secret, self.endpoint.replica)
        return f"host: {host}:{self.endpoint.port}\r\nauthorization: Bearer {key}\r\n".encode()

    def _head(self, path: str, secret: str) -> bytes:
        """The constant part of a request's head: never anything that the client sent."""
        kinds = b"content-type: application/json\r\naccept: application/json, text/event-stream\r\n"
        return f"POST {path} HTTP/1.1\r\n".encode() + self._address(secret) + kinds


class Fleet:
    """Replicas by model."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._by_key: dict[tuple[str, str, int], Replica] = {}
        self._by_model: dict[str, list[Replica]] = {}
        self._inside: dict[str, list[Replica]] = {}
        self._outside: Mapping[str, list[Replica]] = {}
        self._every_outside: tuple[Replica, ...] = ()
        self._turns: dict[str, Turn] = {}
        self._left: list[Pool] = []
        """Of replicas that are gone, while exchanges with them go on."""
        self.prefixes = Prefixes()

    def update(self, endpoints: Endpoints) -> None:
        """Take up a new snapshot part; a replica at a new address is a new one."""
        known: dict[tuple[str, str, int], Replica] = {}
        by_model: dict[str, list[Replica]] = {}
        for endpoint in endpoints.endpoints:
            key = (endpoint.replica, endpoint.host, endpoint.port)
            replica = self._by_key.get(key) or Replica(endpoint, self._secret)
            replica.update(endpoint)
            replica.turn = self._turns.setdefault(endpoint.model, Turn())
            known[key] = replica
            by_model.setdefault(endpoint.model, []).append(replica)
        for key, replica in self._by_key.items():
            if key not in known:
                replica.pool.retire()
                self._left.append(replica.pool)
                self.prefixes.forget(replica.name)
        self._by_key, self._inside = known, by_model
        self._by_model = {**by_model, **self._outside}
        self._turns = {model: self._turns[model] for model in by_model}
        self._assign()

    def outside(self, usable: Mapping[str, Sequence[Replica]], all_of_them: tuple[Replica, ...]) -> None:
        """The keys of external models that may be used, by model; and all that there are."""
        self._outside = {model: list(keys) for model, keys in usable.items()}
        self._every_outside = all_of_them
        self._by_model = {**self._inside, **self._outside}

    def of(self, model: str) -> list[Replica]:
        return self._by_model.get(model, [])

    def choose(self, model: str, ask: router.Ask) -> router.Choice[Replica] | Reason:
        return router.choose(self._by_model.get(model, []), ask, self.prefixes)

    def begin(self, choice: router.Choice[Replica], text: Text, now: float) -> Ticket:
        """The chosen replica gets the request: it is counted, and its text is known there, from this moment on."""
        if text is not NOTHING:
            self.prefixes.add(text, choice.load.bit)
        return choice.load.begin(now, text.size, choice.matched)

    def sweep(self, now: float) -> None:
        """What rests too long, and what nobody answers any more."""
        self._left = [pool for pool in self._left if pool.open]
        for pool in chain((r.pool for r in self), self._left):
            pool.sweep(now)

    def lost(self, replica: Replica) -> None:
        """Nobody listens there: what it had read went with it."""
        self.prefixes.forget(replica.name)
        self._assign()

    def _assign(self) -> None:
        for _ in range(2):  # the first bit of a new round takes all others away
            for replica in self._by_key.values():
                replica.bit = self.prefixes.bit(replica.name)

    def __iter__(self) -> Iterator[Replica]:
        return chain(self._by_key.values(), self._every_outside)
