"""The authority: made once, whole files, and certificates that a TLS stack takes for what they are."""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from llmgw.cluster import pki


def test_the_authority_is_made_once_and_its_key_is_closed(tmp_path: Path) -> None:
    first = pki.ensure_authority(tmp_path / "pki")
    again = pki.ensure_authority(tmp_path / "pki")
    assert first.pem == again.pem
    assert stat.S_IMODE((tmp_path / "pki/ca-key.pem").stat().st_mode) == 0o600
    assert first.certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not list((tmp_path / "pki").glob(".*"))


def test_the_servers_certificate_is_made_anew_only_when_a_name_is_missing(tmp_path: Path) -> None:
    assert pki.ensure_server(tmp_path, {"localhost", "127.0.0.1"})
    assert not pki.ensure_server(tmp_path, {"localhost"})
    assert pki.ensure_server(tmp_path, {"llm.example.com"})
    found = x509.load_pem_x509_certificate((tmp_path / "server.pem").read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(n.value) for n in names} == {"localhost", "127.0.0.1", "llm.example.com"}
    assert stat.S_IMODE((tmp_path / "server-key.pem").stat().st_mode) == 0o600


def test_an_authority_kept_elsewhere_issues_nothing_and_says_so(tmp_path: Path) -> None:
    pki.ensure_authority(tmp_path)
    (tmp_path / "ca-key.pem").unlink()
    authority = pki.ensure_authority(tmp_path)
    with pytest.raises(pki.PkiProblem, match="kept elsewhere"):
        pki.issue(authority, pki.new_key().public_key(), "n1")


def test_half_an_authority_is_not_replaced(tmp_path: Path) -> None:
    pki.ensure_authority(tmp_path)
    (tmp_path / "ca.pem").unlink()
    with pytest.raises(pki.PkiProblem, match="put the authority's certificate back"):
        pki.ensure_authority(tmp_path)


def test_a_revocation_list_names_what_was_revoked(tmp_path: Path) -> None:
    authority = pki.ensure_authority(tmp_path)
    issued = pki.issue(authority, pki.new_key().public_key(), "n1")
    pki.write_crl(tmp_path, [(issued.serial, datetime.now(UTC))])
    crl = x509.load_pem_x509_crl((tmp_path / "crl.pem").read_bytes())
    assert [f"{r.serial_number:x}" for r in crl] == [issued.serial]
    key = authority.certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert crl.is_signature_valid(key)


def _request(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> str:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "n1")])
    made = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM).decode()


def test_a_signing_request_gives_its_key_or_says_what_is_wrong() -> None:
    key = pki.new_key()
    assert pki.request_key(_request(key)) == key.public_key()
    with pytest.raises(pki.PkiProblem, match="not a certificate signing request"):
        pki.request_key("nonsense")
    with pytest.raises(pki.PkiProblem, match="elliptic-curve"):
        pki.request_key(_request(rsa.generate_private_key(65537, 2048)))
