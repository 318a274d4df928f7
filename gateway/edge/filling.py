"""A large body on its way into the one piece of memory that it will stay in.

A parser copies what it is fed, and pieces must be joined; each copy of ten megabytes costs as much as all else of the
request. So for the rest of a body whose length is known this takes the protocol's place at its transport, and the
kernel writes straight into what becomes the body.
"""

from __future__ import annotations

import asyncio
import ctypes
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.edge.direct import DirectClient
    from gateway.edge.protocol import EdgeProtocol

LEAST_BYTES = 256 * 1024
"""Still to come: for less it is not worth it."""


_unfilled = ctypes.pythonapi.PyBytes_FromStringAndSize  # `bytes(size)` would write zeros, a tenth of all the work
_unfilled.argtypes, _unfilled.restype = (ctypes.c_char_p, ctypes.c_ssize_t), ctypes.py_object


class Filling(asyncio.BufferedProtocol):
    """From its making until the body is whole; `client.fed_all` then. Reading must be paused, and is resumed."""

    def __init__(self, protocol: EdgeProtocol, client: DirectClient, begun: Sequence[bytes], size: int) -> None:
        self._protocol, self._client = protocol, client
        self._file = io.BytesIO(_unfilled(None, size))
        self._view = self._file.getbuffer()
        self._at = 0
        for piece in begun:
            self._view[self._at : self._at + len(piece)] = piece
            self._at += len(piece)
        protocol.transport.set_protocol(self)

    def body(self) -> bytes:
        """All of it, not copied. Once."""
        self._view.release()
        return self._file.getvalue()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._at :]

    def buffer_updated(self, nbytes: int) -> None:
        self._at += nbytes
        self._client.waits_since = self._protocol.loop.time()
        if self._at == len(self._view):
            transport = self._protocol.transport
            transport.pause_reading()  # how a transport reads is settled when it begins to
            transport.set_protocol(self._protocol)
            transport.resume_reading()
            self._protocol.body_passed_by()
            self._client.fed_all()

    def eof_received(self) -> None:
        self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()
