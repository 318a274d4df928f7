"""Who asks, remembered for as long as the snapshot that says so is in force: a key is hashed once, not every time."""

from __future__ import annotations

from gateway.core import principal
from gateway.core.principal import Principal
from gateway.core.snapshot import Tenancy
from gateway.edge.client import Client
from llmgw.keys import key_hash

MOST = 4096


class Callers:
    """One process's. `_known`: by what the client's `Authorization` said, in memory only."""

    def __init__(self, chat_secret: str) -> None:
        self._chat_secret = chat_secret
        self._tenancy = Tenancy()
        self._known: dict[bytes, tuple[float, Principal]] = {}

    def of(self, client: Client, tenancy: Tenancy, now: float) -> Principal:
        """At `now` (Unix seconds); raises `WrongKey`. Another snapshot is another memory: a key that was revoked is
        unknown with it, and one that expires is refused on time."""
        if tenancy is not self._tenancy:
            self._tenancy, self._known = tenancy, {}
        said = client.header(b"authorization")
        if said is not None and (known := self._known.get(said)) is not None and now < known[0]:
            return known[1]
        token = principal.token_of(said, client.header(b"x-api-key"))
        who = principal.resolve(token, tenancy, self._chat_secret, now)
        if said is not None and who.key:  # no chat page's, which lasts for minutes
            self._remember(said, token, who)
        return who

    def _remember(self, said: bytes, token: str, who: Principal) -> None:
        if len(self._known) >= MOST:
            self._known.clear()
        expires_at = self._tenancy.keys[key_hash(token)].expires_at
        self._known[said] = (float("inf") if expires_at is None else expires_at), who
