"""The replicas that this edge knows: requests in flight, breaker, connections; kept across snapshots."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.core.breaker import CLOSED, Breaker
from gateway.core.request import PATHS
from gateway.core.snapshot import Endpoint, Endpoints
from gateway.edge.upstream import Pool
from llmgw.keys import engine_key


class Replica:
    """One endpoint as this process uses it."""

    __slots__ = ("breaker", "endpoint", "heads", "in_flight", "label", "node", "pool")

    def __init__(self, endpoint: Endpoint, secret: str) -> None:
        self.endpoint = endpoint
        self.in_flight = 0
        self.breaker: Breaker = CLOSED
        self.pool = Pool(endpoint.host, endpoint.port)
        self.label = endpoint.replica.encode()
        self.heads = {kind: self._head(path, secret) for path, kind in PATHS.items()}

    def _head(self, path: str, secret: str) -> bytes:
        """The constant part of a request's head: never anything that the client sent."""
        host = f"[{self.endpoint.host}]" if ":" in self.endpoint.host else self.endpoint.host
        key = engine_key(secret, self.endpoint.replica)
        return (
            f"POST {path} HTTP/1.1\r\nhost: {host}:{self.endpoint.port}\r\nauthorization: Bearer {key}\r\n"
            "content-type: application/json\r\naccept: application/json, text/event-stream\r\n"
        ).encode()

    def failed(self, now: float, at_once: bool) -> None:
        self.breaker = self.breaker.failed(now, at_once)

    def served(self) -> None:
        if self.breaker is not CLOSED:
            self.breaker = CLOSED


class Fleet:
    """Replicas by model."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._by_key: dict[tuple[str, str, int], Replica] = {}
        self._by_model: dict[str, list[Replica]] = {}
        self._turn = 0

    def update(self, endpoints: Endpoints) -> None:
        """Take up a new snapshot part; a replica at a new address is a new one."""
        known: dict[tuple[str, str, int], Replica] = {}
        by_model: dict[str, list[Replica]] = {}
        for endpoint in endpoints.endpoints:
            key = (endpoint.replica, endpoint.host, endpoint.port)
            replica = self._by_key.get(key) or Replica(endpoint, self._secret)
            replica.endpoint = endpoint
            known[key] = replica
            by_model.setdefault(endpoint.model, []).append(replica)
        for key, replica in self._by_key.items():
            if key not in known:
                replica.pool.retire()
        self._by_key, self._by_model = known, by_model

    def of(self, model: str) -> list[Replica]:
        return self._by_model.get(model, [])

    def turn(self) -> int:
        self._turn += 1
        return self._turn

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._by_key.values())
