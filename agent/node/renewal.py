"""The next certificate of this node, asked for over its link before the present one ends.

The key stays: a certificate is one file that is replaced in one step, where a key and a certificate of two would leave
an agent that dies between them without either. The link that is up goes on with the certificate it began with.
"""

from __future__ import annotations

import asyncio
import logging
import stat
from collections.abc import Awaitable, Callable
from typing import Any

from agent.node.home import write_atomically
from agent.node.settings import Tls
from agent.wire.messages import Certified, Certify

_log = logging.getLogger("llmgw.agent")

_ANSWERED_S = 30.0
_LEFT = 1 / 3
"""Of its lifetime: renewed when less is left."""


class NotRenewed(Exception):
    """Why the certificate was not renewed, in one sentence."""


class Renewal:
    """Of the certificate that `tls` names."""

    def __init__(self, tls: Tls, node_id: str, every_s: float = 3600.0) -> None:
        self._tls, self._node_id = tls, node_id
        self.every_s = every_s
        """Between two looks, and after a refusal."""
        self.problem: str | None = None
        """Why the last try came to nothing."""
        self._answer: asyncio.Future[Certified] | None = None

    async def keep(
        self,
        send: Callable[[Certify], Awaitable[None]],
        now: Callable[[], float],
        changed: Callable[[], None],
        jitter: Callable[[], float],
    ) -> None:
        """Asks for the next certificate by `send` when it is time, and again until it is there. `now` by the control
        plane's clock; `changed` is called when the problem is another one."""
        while True:
            before = self.problem
            try:
                if self.due(now()):
                    longer_s = await self._renewed(send)
                    _log.info("the node's certificate is good for %.0f more days now", longer_s / 86400)
                self.problem = None
            except NotRenewed as e:
                self.problem = str(e)
                _log.warning("the node's certificate was not renewed: %s", e)
            if self.problem != before:
                changed()
            await asyncio.sleep(self.every_s * (1 + jitter() / 2))

    def answered(self, message: Certified) -> None:
        """The control plane has answered what was asked."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(message)

    async def _renewed(self, send: Callable[[Certify], Awaitable[None]]) -> float:
        self._answer = asyncio.get_running_loop().create_future()
        await send(Certify(self.request()))
        try:
            answer = await asyncio.wait_for(self._answer, _ANSWERED_S)
        except TimeoutError:
            raise NotRenewed(
                f"the control plane did not answer within {_ANSWERED_S:g} s; an old one knows no renewal"
            ) from None
        if answer.certificate is None:
            raise NotRenewed(answer.problem or "the control plane refused it without a reason")
        return self.take(answer.certificate)

    def due(self, now: float) -> bool:
        """`now` by the control plane's clock: a node's own may be wrong. Raises `NotRenewed`."""
        present = self._present()
        begins, ends = present.not_valid_before_utc.timestamp(), present.not_valid_after_utc.timestamp()
        return bool(ends - now < (ends - begins) * _LEFT)

    def request(self) -> str:
        """A signing request, in PEM. Raises `NotRenewed`."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.x509.oid import NameOID

        try:
            key: Any = serialization.load_pem_private_key(self._tls.key.read_bytes(), password=None)
        except (OSError, ValueError, TypeError) as e:
            raise NotRenewed(f"the key {self._tls.key} cannot be read: {e}") from None
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self._node_id)])
        made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
        return made.public_bytes(serialization.Encoding.PEM).decode()

    def take(self, pem: str) -> float:
        """Puts the new certificate in the old one's place; how many seconds it is good for beyond that one. Raises
        `NotRenewed` for one that is not this node's."""
        from cryptography import x509
        from cryptography.x509.oid import NameOID

        present = self._present()
        try:
            found = x509.load_pem_x509_certificate(pem.encode())
        except ValueError as e:
            raise NotRenewed(f"what came is no certificate: {e}") from None
        names = [str(n.value) for n in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        if names != [self._node_id]:
            raise NotRenewed(f"what came is a certificate of {', '.join(names) or 'nobody'}, not of {self._node_id}")
        if found.public_key() != present.public_key():
            raise NotRenewed("what came is a certificate of another key than this node's")
        longer_s: float = (found.not_valid_after_utc - present.not_valid_after_utc).total_seconds()
        if longer_s <= 0:
            raise NotRenewed("what came ends no later than the certificate that is here")
        path = self._tls.cert.resolve()
        try:
            write_atomically(path, pem.encode(), stat.S_IMODE(path.stat().st_mode))
        except OSError as e:
            raise NotRenewed(f"the new certificate cannot be written to {path}: {e.strerror or e}") from None
        return longer_s

    def _present(self) -> Any:
        from cryptography import x509

        try:
            return x509.load_pem_x509_certificate(self._tls.cert.read_bytes())
        except (OSError, ValueError) as e:
            raise NotRenewed(f"the certificate {self._tls.cert} cannot be read: {e}") from None
