"""An engine's answer as a parser tells it, and what of its body nobody has taken yet."""

from __future__ import annotations

import httptools

MOST_HEADERS = 100


class Answer:
    """One after the other, on one connection."""

    __slots__ = (
        "_between",
        "_buffer",
        "_framed",
        "_headless",
        "_keep",
        "_named",
        "_parser",
        "_size",
        "done",
        "fault",
        "got_head",
        "headers",
        "status",
    )

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)

    def begin(self, headless: bool) -> None:
        """The next one. `headless`: it has no body whatever its headers say."""
        self._headless = headless
        self._buffer: list[bytes] = []
        self._size = 0
        self._keep = True
        """The connection may be used again."""
        self._framed = self._between = False
        """`_between`: the parser stands between two HTTP chunks."""
        self.headers: list[tuple[bytes, bytes]] = []
        self._named: dict[bytes, bytes] = {}
        self.status = 0
        self.got_head = self.done = False
        self.fault = ""
        """Why the parser was stopped."""

    @property
    def framed(self) -> bool:
        """Whether it says how long it is: one that does not ends with its connection."""
        return self._framed

    @property
    def ended(self) -> bool:
        """Whether all of the body has been taken."""
        return self.done and not self._buffer

    def header(self, name: bytes) -> bytes:
        """The last value of the header `name` (lower case); empty when it is not there."""
        return self._named.get(name, b"")

    # -- the parser's side

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            return
        self.status = status
        if len(self.headers) > MOST_HEADERS:
            self.fault = "the answer's headers are too many"
            raise ValueError(self.fault)
        self._named = named = dict(self.headers)
        self._framed = b"content-length" in named or b"transfer-encoding" in named
        self.got_head = True
        if self._headless or status in (204, 304):
            self._framed = self.done = True
            self._keep = self._keep and status in (204, 304) and not self._headless

    def on_body(self, data: bytes) -> None:
        self._between = False
        if not self._headless:
            self._buffer.append(data)
            self._size += len(data)

    def on_chunk_complete(self) -> None:
        self._between = True

    def on_message_complete(self) -> None:
        if not self.got_head:  # an interim answer
            self.headers = []
            return
        self.done, self._between = True, False
        self._keep = self._keep and self._parser.should_keep_alive()
