"""Which network device holds an address of this machine."""

from __future__ import annotations

import array
import fcntl
import ipaddress
import socket
import struct
import sys
from pathlib import Path

_SIOCGIFCONF = 0x8912
_IFREQ = 40 if sys.maxsize > 2**32 else 32
"""Bytes of one entry: a name of 16, and a socket's address."""


def holding(address: str, root: Path = Path("/")) -> str | None:
    """`eth0`. None where no device holds it, or where it is no address."""
    try:
        wanted = ipaddress.ip_address(address.strip("[]").split("%", 1)[0])
    except ValueError:
        return None
    if isinstance(wanted, ipaddress.IPv6Address):
        return _version_6(wanted, root)
    return next((name for name, found in _version_4() if found == wanted), None)


def _version_4() -> list[tuple[str, ipaddress.IPv4Address]]:
    """Also second addresses of one device, which have a label instead of its name (`eth0:1`)."""
    room = array.array("B", bytes(_IFREQ * 4096))
    address, _ = room.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        told = fcntl.ioctl(asked, _SIOCGIFCONF, struct.pack("iL", len(room), address))
    length = struct.unpack("iL", told)[0]
    entries = room.tobytes()[:length]
    found = []
    for at in range(0, length, _IFREQ):
        name = entries[at : at + 16].split(b"\0", 1)[0].decode(errors="replace").split(":", 1)[0]
        found.append((name, ipaddress.IPv4Address(entries[at + 20 : at + 24])))
    return found


def _version_6(wanted: ipaddress.IPv6Address, root: Path) -> str | None:
    try:
        lines = (root / "proc/net/if_inet6").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        parts = line.split()
        if len(parts) == 6 and parts[0] == wanted.packed.hex():
            return parts[5]
    return None
