"""`llmgw-agent join CODE`: a key that never leaves this machine, a certificate for it, and agent.yaml."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import yaml

from agent.core import joining
from agent.core.joining import JoinCode
from agent.node.home import Home, write_atomically

_TIMEOUT_S = 20.0


class CannotJoin(Exception):
    """Why, in one sentence."""


def join(home: Home, text: str, node_id: str | None, address: str | None) -> str:
    """Joins and returns the node id. Raises `CannotJoin`; nothing is written then."""
    try:
        code = joining.read(text)
    except joining.BadCode as e:
        raise CannotJoin(str(e)) from None
    name = code.node_id or node_id or socket.gethostname()
    key, csr = _key_and_request(name)
    answer = _ask(code, name, csr)
    _write(home, name, address, key, answer)
    return name


def _key_and_request(name: str) -> tuple[bytes, str]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    try:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    except ValueError as e:
        raise CannotJoin(f"{name!r} cannot be a node id: {e}; choose one with --node-id") from None
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return pem, request.public_bytes(serialization.Encoding.PEM).decode()


def _ask(code: JoinCode, name: str, csr: str) -> dict[str, str]:
    import httpx

    body = {"id": code.id, "node_id": name, "csr": csr, "mac": joining.request_mark(code.secret, name, csr)}
    address = f"{code.portal}/agent/join"
    try:
        response = httpx.post(address, json=body, timeout=_TIMEOUT_S)
        found: Any = response.json()
    except httpx.HTTPError as e:
        raise CannotJoin(f"{address} cannot be asked: {e or type(e).__name__}") from None
    except ValueError:
        raise CannotJoin(f"{address} answered with {response.status_code} and no JSON: is that a llmgw?") from None
    if response.status_code != 200:
        told = found.get("error", {}).get("message") if isinstance(found, dict) else None
        raise CannotJoin(f"{address} refused: {told or f'status {response.status_code}'}")
    try:
        answer = {k: str(found[k]) for k in ("certificate", "authority", "server", "mac")}
    except (KeyError, TypeError):
        raise CannotJoin(f"{address} answered with something that is no certificate") from None
    expected = joining.answer_mark(code.secret, answer["certificate"], answer["authority"], answer["server"])
    if not joining.same(expected, answer["mac"]):
        raise CannotJoin(f"{address} does not know the code's secret: somebody else answered; nothing was changed")
    return answer


def _write(home: Home, name: str, address: str | None, key: bytes, answer: dict[str, str]) -> None:
    tls = home.path / "tls"
    tls.mkdir(mode=0o700, exist_ok=True)
    write_atomically(tls / "node-key.pem", key)
    write_atomically(tls / "node.pem", answer["certificate"].encode())
    write_atomically(tls / "ca.pem", answer["authority"].encode(), 0o644)
    settings = _kept(home.settings) | {
        "node_id": name,
        "server": answer["server"],
        "tls": {"ca": "tls/ca.pem", "cert": "tls/node.pem", "key": "tls/node-key.pem"},
    }
    if address is not None:
        settings["address"] = address
    write_atomically(home.settings, yaml.safe_dump(settings, sort_keys=False).encode())


def _kept(path: Path) -> dict[str, Any]:
    """What a person wrote into agent.yaml stays when a node joins again."""
    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError):
        return {}
    return found if isinstance(found, dict) else {}
