"""Whether anybody is left at the other end of a connection.

A process that dies is told of by its machine; a machine that loses its power or its cable tells nobody, and the kernel
would go on for a quarter of an hour. An engine that merely computes acknowledges all the same, however long it does.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

SILENT_S = 15.0
"""Without a sign of life from the other machine: longer than a switch or a link takes to come back."""
_INFO = struct.Struct("=2xB49x2I")
"""Of the kernel's `tcp_info`: sendings in a row that were not answered; milliseconds since data came, and
since anything was acknowledged."""


def watch(sock: Any, silent_s: float = SILENT_S) -> None:
    """Has the kernel ask the other side while nothing is on its way, and end what is silent for `silent_s`."""
    idle = max(int(silent_s / 3), 1)
    each = max(int(silent_s / 8), 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, each)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, max(round((silent_s - idle) / each), 1))


def gone(sock: Any, silent_s: float = SILENT_S) -> bool:
    """Whether what was sent is on its way in vain: the kernel does not ask then, but sends it again and again.

    Not by TCP_USER_TIMEOUT: that also ends what is acknowledged and merely not read."""
    resent, received, acknowledged = _INFO.unpack(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size))
    return bool(resent) and min(received, acknowledged) >= silent_s * 1000
