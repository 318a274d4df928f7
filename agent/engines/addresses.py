"""Whether an address is reached only from inside."""

from __future__ import annotations

import ipaddress

_PRIVATE = tuple(
    ipaddress.ip_network(net)
    for net in (
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "fc00::/7",
        "fe80::/10",
        "::1/128",
    )
)


def is_private(address: str) -> bool | None:
    """RFC 1918, unique local, link-local or loopback. None for a name, of which nothing is known."""
    try:
        found = ipaddress.ip_address(address.strip("[]").split("%", 1)[0])
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return any(found in net for net in _PRIVATE if net.version == found.version)
