"""What uvicorn's websocket does not tell an application: whose certificate the client showed, and when it was heard."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

SCOPE_KEY = "llmgw.peer"
HEARD_KEY = "llmgw.heard"


@dataclass(frozen=True, slots=True)
class Peer:
    """What TLS has proved. `serial` is lower-case hexadecimal, as in the rows."""

    common_name: str
    serial: str
    not_after: datetime


@dataclass(eq=False, slots=True)
class Heard:
    """When the last whole message of a connection had come. Whoever looks at it may be late: that is not the node's."""

    at: float = field(default_factory=time.time)
    """In Unix seconds, for the rows."""
    clock: float = field(default_factory=time.monotonic)
    """For what is counted from it in this process."""


class PeerProtocol(WebSocketsSansIOProtocol):
    """Puts the `Peer` into the scope under `llmgw.peer`, and a `Heard` that it keeps under `llmgw.heard`."""

    _heard: Heard | None = None

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        scope: dict[str, Any] | None = getattr(self, "scope", None)
        if scope is None:  # the handshake itself was refused
            return
        tls = self.transport.get_extra_info("ssl_object")
        scope[SCOPE_KEY] = peer(tls.getpeercert()) if tls is not None else None
        self._heard = scope[HEARD_KEY] = Heard()

    def send_receive_event_to_app(self) -> None:
        if self._heard is not None:
            self._heard.at, self._heard.clock = time.time(), time.monotonic()
        super().send_receive_event_to_app()


def peer(certificate: dict[str, Any] | None) -> Peer | None:
    """From what `ssl` says of a verified certificate; None where there is none."""
    if not certificate:
        return None
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    serial = f"{int(certificate['serialNumber'], 16):x}"
    ends = datetime.strptime(certificate["notAfter"], "%b %d %H:%M:%S %Y %Z").replace(tzinfo=UTC)
    return Peer(names[0] if names else "", serial, ends)
