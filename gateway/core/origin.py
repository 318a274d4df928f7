"""Who is really calling, where proxies stand before the gateway: only what a trusted one says counts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Network = IPv4Network | IPv6Network
_FOR, _PROTO = b"x-forwarded-for", b"x-forwarded-proto"


@dataclass(frozen=True, slots=True)
class Origin:
    """`https` None: nobody who is trusted said."""

    address: str
    https: bool | None = None


def origin(peer: str, headers: Sequence[tuple[bytes, bytes]], trusted: Sequence[Network]) -> Origin:
    """The nearest address that is no trusted proxy. Each proxy appends whom it heard, so the chain is read from its
    end, and what stands before the first stranger is only his word."""
    if not trusted or not _trusts(trusted, peer):
        return Origin(peer)
    address = peer
    chain = b",".join(value for name, value in headers if name == _FOR).split(b",")
    for entry in reversed(chain):
        found = _address(entry.strip().decode("latin-1"))
        if found is None:
            break
        address = str(found)
        if not _trusts(trusted, address):
            break
    said = [value for name, value in headers if name == _PROTO]
    protocol = said[-1].rsplit(b",", 1)[-1].strip().lower() if said else b""
    return Origin(address, {b"https": True, b"http": False}.get(protocol))


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Also with a port, as some proxies write it: `192.0.2.7:4711`, `[2001:db8::1]:4711`."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ip_address(text)
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found


def _trusts(trusted: Sequence[Network], address: str) -> bool:
    found = _address(address)
    return found is not None and any(found in network for network in trusted)
