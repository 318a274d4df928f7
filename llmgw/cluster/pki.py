"""The cluster's certificate authority: EC P-256, made once, in the state directory's `pki/`.

`ca.pem` and `ca-key.pem` are the authority, `server.pem` and `server-key.pem` the agent link's, `crl.pem` what was
revoked. Where the authority's key is kept elsewhere, `ca-key.pem` is absent: everything works but issuing.
Files appear whole or not at all; keys are 0600. Rows about certificates are the fleet's business.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import secrets
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3650
SERVER_DAYS = 397
NODE_DAYS = 730
RENEW_BEFORE = timedelta(days=30)
_SKEW = timedelta(minutes=10)
"""Certificates begin a little in the past: nodes' clocks differ."""


class PkiProblem(Exception):
    """A certificate cannot be made or read; the sentence says why and what to do."""


@dataclass(frozen=True, slots=True)
class Authority:
    """`key` None: it is kept elsewhere."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey | None

    @property
    def pem(self) -> str:
        return _pem(self.certificate)


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate that was just made. `serial` is lower-case hexadecimal."""

    pem: str
    serial: str
    common_name: str
    not_after: datetime


def ensure_authority(folder: Path) -> Authority:
    """The authority in `folder`; made when there is none. Raises `PkiProblem` when only half of it is there."""
    certificate, key = folder / "ca.pem", folder / "ca-key.pem"
    if not certificate.exists():
        if key.exists():
            raise PkiProblem(f"{key} is there and {certificate} is not: put the authority's certificate back")
        _make_authority(folder)
    return read_authority(folder)


def read_authority(folder: Path) -> Authority:
    try:
        certificate = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    except (OSError, ValueError) as e:
        raise PkiProblem(f"the cluster's authority cannot be read: {e}") from None
    try:
        key = serialization.load_pem_private_key((folder / "ca-key.pem").read_bytes(), password=None)
    except FileNotFoundError:
        return Authority(certificate, None)
    except (OSError, ValueError) as e:
        raise PkiProblem(f"the authority's key cannot be read: {e}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise PkiProblem(f"{folder / 'ca-key.pem'} is not the key of {folder / 'ca.pem'}")
    return Authority(certificate, key)


def ensure_server(folder: Path, names: Iterable[str]) -> bool:
    """The link's own certificate for `names`; True when it was made anew: a name was missing, or it soon ends."""
    wanted = set(names)
    path = folder / "server.pem"
    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
        authority = read_authority(folder)
        found.verify_directly_issued_by(authority.certificate)
        ends = found.not_valid_after_utc - RENEW_BEFORE
        if wanted <= _names(found) and datetime.now(UTC) < ends and (folder / "server-key.pem").exists():
            return False
        wanted |= _names(found)
    except (OSError, ValueError, x509.ExtensionNotFound, InvalidSignature):
        authority = ensure_authority(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _sign(
        authority, key.public_key(), "llmgw agent link", SERVER_DAYS, ExtendedKeyUsageOID.SERVER_AUTH, sorted(wanted)
    )
    write(folder / "server-key.pem", key_pem(key), 0o600)
    write(path, _pem(certificate) + authority.pem, 0o644)
    return True


def issue(authority: Authority, public_key: ec.EllipticCurvePublicKey, node_id: str, days: int = NODE_DAYS) -> Issued:
    """A node's certificate: for dialling the link, its common name the node id."""
    certificate = _sign(authority, public_key, node_id, days, ExtendedKeyUsageOID.CLIENT_AUTH)
    return Issued(_pem(certificate), serial_of(certificate), node_id, certificate.not_valid_after_utc)


def request_key(csr: str) -> ec.EllipticCurvePublicKey:
    """The public key of a signing request; raises `PkiProblem` for what is none, or is not signed by its own key."""
    try:
        request = x509.load_pem_x509_csr(csr.encode())
        sound = request.is_signature_valid
        key = request.public_key()
    except (ValueError, TypeError) as e:
        raise PkiProblem(f"not a certificate signing request: {e}") from None
    if not sound:
        raise PkiProblem("the signing request is not signed by its own key")
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise PkiProblem("the signing request must hold an elliptic-curve key (P-256)")
    return key


def write_crl(folder: Path, revoked: Iterable[tuple[str, datetime]]) -> None:
    """`crl.pem` from (serial, when) of everything revoked."""
    authority = read_authority(folder)
    key = _key(authority)
    now = datetime.now(UTC)
    builder = x509.CertificateRevocationListBuilder().issuer_name(authority.certificate.subject)
    builder = builder.last_update(now - _SKEW).next_update(now + timedelta(days=AUTHORITY_DAYS))
    for serial, at in revoked:
        entry = x509.RevokedCertificateBuilder().serial_number(int(serial, 16)).revocation_date(at)
        builder = builder.add_revoked_certificate(entry.build())
    crl = builder.sign(key, hashes.SHA256())
    write(folder / "crl.pem", crl.public_bytes(serialization.Encoding.PEM).decode(), 0o644)


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def serial_of(certificate: x509.Certificate) -> str:
    return f"{certificate.serial_number:x}"


def server_names(extra: Iterable[str] = ()) -> set[str]:
    """What agents may call this machine: loopback, its names and addresses, and those that were configured."""
    host = socket.gethostname()
    names = {"localhost", "127.0.0.1", "::1", host, *extra}
    with contextlib.suppress(OSError):  # a host name that does not resolve: the other names stand
        names |= {str(info[4][0]).split("%")[0] for info in socket.getaddrinfo(host, None)}
    outward = outward_address()
    return {n for n in (*names, outward or "") if n}


def outward_address() -> str | None:
    """This machine's address on its way out; None without a route."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing: the kernel only chooses the address it would send from
        return str(probe.getsockname()[0])
    return None


def write(path: Path, text: str, mode: int) -> None:
    """The file, whole or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(fd, "w") as f:
            os.fchmod(f.fileno(), mode)
            f.write(text)
            f.flush()
            os.fsync(f.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _make_authority(folder: Path) -> None:
    key = new_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"llmgw authority {secrets.token_hex(4)}")])
    now = datetime.now(UTC)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + timedelta(days=AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    write(folder / "ca-key.pem", key_pem(key), 0o600)
    write(folder / "ca.pem", _pem(certificate), 0o644)


def _sign(
    authority: Authority,
    public_key: ec.EllipticCurvePublicKey,
    common_name: str,
    days: int,
    purpose: x509.ObjectIdentifier,
    names: Iterable[str] = (),
) -> x509.Certificate:
    key = _key(authority)
    now = datetime.now(UTC)
    ends = min(now + timedelta(days=days), authority.certificate.not_valid_after_utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]))
        .issuer_name(authority.certificate.subject)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.certificate.public_key()),  # type: ignore[arg-type]
            critical=False,
        )
    )
    alternatives = [_general_name(n) for n in names]
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return builder.sign(key, hashes.SHA256())


def _key(authority: Authority) -> ec.EllipticCurvePrivateKey:
    if authority.key is None:
        raise PkiProblem(
            "the authority's key is kept elsewhere: put ca-key.pem into the state directory's pki/ to issue"
        )
    return authority.key


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name.encode("idna").decode() if not name.isascii() else name)


def _names(certificate: x509.Certificate) -> set[str]:
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(n.value) for n in found}


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
