"""Where agents dial the link."""

from __future__ import annotations

from urllib.parse import urlsplit

from llmgw.cluster import pki
from llmgw.machine import Machine

_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - a comparison


def link_url(machine: Machine) -> str:
    """`wss://host:port/agent/link`: by the name that was configured for it, else the portal's, else the address
    that the link listens on."""
    return f"wss://{_bracketed(_host(machine))}:{machine.link_port}/agent/link"


def _host(machine: Machine) -> str:
    if machine.link_names:
        return machine.link_names[0]
    if machine.public_url and (named := urlsplit(machine.public_url).hostname):
        return named
    if machine.host in _EVERYWHERE:
        outward = pki.outward_address()
        return outward or "127.0.0.1"
    return machine.host


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
