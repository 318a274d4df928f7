"""Models served outside the cluster, as this edge uses them: each provider's key is an endpoint of its own.

Keys are read from their files once a second, beside the requests, and are nowhere but in the heads of requests. A key
that cannot be read, or that its provider refused, is left out and says why; the others stay.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from gateway.core.breaker import CLOSED, Breaker
from gateway.core.load import Load, Turn
from gateway.core.request import PATHS
from gateway.core.retry import Failure
from gateway.core.snapshot import Catalog, Endpoint, External, ExternalKey, ModelEntry
from gateway.edge import key_files
from gateway.edge.key_files import KeyFile
from gateway.edge.pool import Pool
from gateway.edge.replicas import Fleet, Replica

log = logging.getLogger(__name__)
EACH_S = 1.0
PARALLEL = 64
"""Places that a key is taken to have: nobody tells how many there are."""
PAUSE_S = 5.0
"""For a 429 that does not say how long."""
LEAST_PAUSE_S = 0.05
REFUSED_S = 300.0
"""After which a refused key is tried again although its file is the same."""
FORBIDDEN_S = 60.0
"""The same after a 402, which money mends, and a 403, which some providers also answer to what one request says."""
IDLE_S = 30.0
"""How long a kept connection may rest: TLS anew costs two round trips."""
CONNECT_S = 10.0
"""At least, for a name, a connection and TLS across the world."""
OUT, BUSY = (401, 402, 403), 429
STANDINGS = {
    "": "usable",
    "external_key_loose": "usable",
    "external_key_resting": "resting",
    "external_key_refused": "refused",
    "external_key_unreadable": "unreadable",
}
"""What a key's code means in figures."""
_NAMED = re.compile(r"\b(?:sk|org|proj|user|key)[-_][A-Za-z0-9*_.…-]{6,}")
"""How providers write keys and accounts in what they say."""


class Outside(Pool):
    """Connections to a provider."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        super().__init__(host, port, tls=tls, idle_s=IDLE_S, least_connect_s=CONNECT_S)


class Provider(NamedTuple):
    """Where a model is, taken apart. `base`: the path before `/v1`."""

    secure: bool
    host: str
    port: int
    base: str

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"


def provider(url: str) -> Provider:
    """Of what the catalog has checked."""
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    return Provider(secure, parts.hostname or "", parts.port or (443 if secure else 80), parts.path.rstrip("/"))


class Key(Replica):
    """One key of one model. `number` from 1. What it says of itself (`problem`, `status`) has no secret in it."""

    __slots__ = ("_key", "again_at", "believed", "file", "number", "problem", "since", "status", "to", "warned")

    def __init__(self, model: str, number: int, external: External, key: ExternalKey, tls: ssl.SSLContext | None):
        self.to, self.number, self.file = provider(external.url), number, key.file
        endpoint = self._endpoint(model, key)
        Load.__init__(self, endpoint)
        self.pool = Outside(self.to.host, self.to.port, tls if self.to.secure else None)
        self.label = endpoint.replica.encode()
        self.heads, self.metrics_head = {}, b""
        self._key = b""
        self.problem = "its file has not been read yet"
        """Why it cannot be used; empty: it can."""
        self.since = 0.0
        """Unix seconds; of the problem, or of the refusal."""
        self.status = 0
        """401, 402 or 403: it was refused with it, and has not been accepted since."""
        self.again_at = 0.0
        """Monotonic: a refused key is tried again then."""
        self.believed = True
        """A file that is empty for a moment is being written."""
        self.warned = ""

    def again(self, key: ExternalKey, turn: Turn) -> None:
        """A new snapshot."""
        self.update(self._endpoint(self.endpoint.model, key))
        self.turn = turn

    def _endpoint(self, model: str, key: ExternalKey) -> Endpoint:
        name = f"external:{model}#{self.number}"
        return Endpoint(name, model, self.to.host, self.to.port, "", "external", False, key.weight, PARALLEL)

    def usable(self, now: float) -> bool:
        return not self.problem and now >= self.again_at

    def found(self, file: KeyFile, at: float) -> bool:
        """What was read just now; whether that changes anything. A new key begins anew, whatever became of the last."""
        if file.problem:
            if self._key and self.believed:
                self.believed = False
                return False
            if file.problem == self.problem:
                return False
            self.problem, self.since, self._key, self.heads = file.problem, at, b"", {}
            log.warning("%s is left out: %s: %s", self.name, self.file, file.problem)
            return True
        self.believed = True
        if file.warning != self.warned:
            self.warned = file.warning
            if file.warning:
                log.warning("%s: %s: %s", self.name, self.file, file.warning)
        if file.key == self._key:
            return False
        log.info("%s: a key was read from %s", self.name, self.file)
        self._key, self.problem, self.since = file.key, "", at
        self.status, self.again_at, self.resting_until, self.breaker = 0, 0.0, 0.0, CLOSED
        self.heads = {kind: self._request_head(path) for path, kind in PATHS.items()}
        return True

    def _request_head(self, path: str) -> bytes:
        to = self.to
        first = f"POST {to.base}{path} HTTP/1.1\r\nhost: {to.authority}\r\nuser-agent: llmgw\r\n".encode()
        kinds = b"content-type: application/json\r\naccept: application/json, text/event-stream\r\n"
        return first + b"authorization: Bearer " + self._key + b"\r\n" + kinds

    # -- what answers say of it

    def passed_over(self, failure: Failure, now: float, at: float) -> bool:
        """Whether `failure` concerns this key and not the request: another one may answer. `now` monotonic, `at` Unix
        seconds."""
        if failure.status == BUSY:
            wait_s = PAUSE_S if failure.retry_after_s is None else max(failure.retry_after_s, LEAST_PAUSE_S)
            self.rest(now + wait_s)
            return True
        if failure.status not in OUT:
            return False
        self.again_at = now + (REFUSED_S if failure.status == 401 else FORBIDDEN_S)
        self.breaker = Breaker(1, self.again_at, failed_at=now)  # half-open then: one request tries it
        if self.status != failure.status:
            self.status, self.since = failure.status, at
            log.error(
                "external_key_refused: %s was refused by its provider (%d): it is left out until %s changes",
                self.name,
                failure.status,
                self.file,
            )
        return True

    def accepted(self) -> None:
        """It answered well."""
        if self.status:
            log.info("%s is accepted again", self.name)
            self.status = 0

    def hushed(self, text: str) -> str:
        """What a provider said, without the key, and without what looks like one or like an account."""
        if self._key:
            text = text.replace(self._key.decode("ascii"), "…")
        return _NAMED.sub("…", text)

    def standing(self, now: float) -> dict[str, Any]:
        """For the live figures: `code` is empty while there is nothing to tell."""
        code = sentence = ""
        if self.problem:
            code, sentence = "external_key_unreadable", f"key {self.number} is left out: {self.problem}"
        elif self.status:
            code, sentence = "external_key_refused", f"key {self.number} was refused by its provider ({self.status})"
        elif self.resting_until > now:
            code, sentence = "external_key_resting", f"key {self.number} was asked to wait (429)"
        elif self.warned:
            code, sentence = "external_key_loose", f"key {self.number}: {self.warned}"
        since = self.since if code in ("external_key_unreadable", "external_key_refused") else None
        return {"endpoint": self.name, "code": code, "sentence": sentence, "since": since}


class Externals:
    """All external models. Told of the catalog, it tells the fleet which keys may be used."""

    def __init__(self, fleet: Fleet, ours: Iterable[Path], ca_file: str = "") -> None:
        self._fleet, self._ours, self._ca_file = fleet, tuple(ours), ca_file
        self._tls: ssl.SSLContext | None = None
        self._tls_problem = ""
        self._keys: dict[tuple[str, int, str, str], Key] = {}
        self._turns: dict[str, Turn] = {}
        self._entries: dict[str, ModelEntry] = {}
        self._seen: dict[str, KeyFile] = {}
        self._changed = asyncio.Event()

    def update(self, catalog: Catalog) -> None:
        """Take up a new snapshot part. A key keeps what is known of it while its model's address and its file are the
        same."""
        entries = {name: entry for name, entry in catalog.models.items() if entry.external is not None}
        if not entries and not self._entries:
            return
        known: dict[tuple[str, int, str, str], Key] = {}
        for name, entry in entries.items():
            external = entry.external
            assert external is not None
            turn = self._turns.setdefault(name, Turn())
            for number, written in enumerate(external.keys, 1):
                place = (name, number, external.url, written.file)
                key = self._keys.get(place) or Key(name, number, external, written, self._context(external.url))
                key.again(written, turn)
                if written.file in self._seen:
                    self._take(key)
                known[place] = key
        for place, key in self._keys.items():
            if place not in known:
                key.pool.retire()
        self._keys, self._entries = known, entries
        self._turns = {name: self._turns[name] for name in entries}
        self._tell(time.monotonic())
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled: look at the files each second, and at once where there are new ones."""
        while True:
            self._changed.clear()
            files = {key.file for key in self._keys.values()}
            if files:
                self._seen = await asyncio.to_thread(key_files.read_all, files, self._ours)
                for key in self._keys.values():
                    if key.file in self._seen:
                        self._take(key)
                self._tell(time.monotonic())
            try:
                async with asyncio.timeout(EACH_S):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def failed(self, key: Key, failure: Failure, heads: dict[str, bytes]) -> bool:
        """Whether `failure` is this key's own, so that another one may answer. `heads`: those that were sent, which
        may be those of a key that was replaced since."""
        if heads is not key.heads and failure.status in OUT:
            return True
        now = time.monotonic()
        passed = key.passed_over(failure, now, time.time())
        if passed:
            self._tell(now)
        return passed

    def report(self, now: float) -> dict[str, list[dict[str, Any]]]:
        """Model → how each of its keys stands; `now` monotonic."""
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in self._entries}
        for key in self._keys.values():
            found[key.endpoint.model].append(key.standing(now))
        return found

    def why_none(self, model: str) -> str:
        """Why no key of `model` can be used, for a client: no path in it."""
        said = [s["sentence"] for s in self.report(time.monotonic()).get(model, ()) if s["code"]]
        return "; ".join(said) or "it has no key"

    def _take(self, key: Key) -> None:
        file = self._seen[key.file]
        if key.to.secure and self._tls_problem:
            file = KeyFile(problem=self._tls_problem)
        key.found(file, time.time())

    def _tell(self, now: float) -> None:
        usable: dict[str, list[Key]] = {name: [] for name in self._entries}
        for key in self._keys.values():
            if self._entries[key.endpoint.model].state == "serving" and key.usable(now):
                usable[key.endpoint.model].append(key)
        self._fleet.outside(usable, tuple(self._keys.values()))

    def _context(self, url: str) -> ssl.SSLContext | None:
        """The system's authorities, and those of the file that this machine names; made when first needed."""
        if self._tls is None and url.startswith("https:"):
            self._tls = ssl.create_default_context()
            self._tls.minimum_version = ssl.TLSVersion.TLSv1_2  # some builds of Python allow older ones
            if self._ca_file:
                try:
                    self._tls.load_verify_locations(self._ca_file)
                except OSError as e:  # also what is no certificate
                    self._tls_problem = f"the certificates in LLMGW_CA_FILE cannot be read ({e.strerror or e})"
                    log.error("external models cannot be reached over TLS: %s", self._tls_problem)
        return self._tls
