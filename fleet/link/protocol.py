"""The one thing that uvicorn's websocket does not tell an application: whose certificate the client showed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

SCOPE_KEY = "llmgw.peer"


@dataclass(frozen=True, slots=True)
class Peer:
    """What TLS has proved. `serial` is lower-case hexadecimal, as in the rows."""

    common_name: str
    serial: str
    not_after: datetime


class PeerProtocol(WebSocketsSansIOProtocol):
    """Puts the `Peer` into the scope under `llmgw.peer`."""

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        scope: dict[str, Any] | None = getattr(self, "scope", None)
        if scope is None:  # the handshake itself was refused
            return
        tls = self.transport.get_extra_info("ssl_object")
        scope[SCOPE_KEY] = peer(tls.getpeercert()) if tls is not None else None


def peer(certificate: dict[str, Any] | None) -> Peer | None:
    """From what `ssl` says of a verified certificate; None where there is none."""
    if not certificate:
        return None
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    serial = f"{int(certificate['serialNumber'], 16):x}"
    ends = datetime.strptime(certificate["notAfter"], "%b %d %H:%M:%S %Y %Z").replace(tzinfo=UTC)
    return Peer(names[0] if names else "", serial, ends)
