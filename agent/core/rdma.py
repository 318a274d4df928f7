"""Readers of sysfs's texts about RDMA adapters, and of sminfo's. Pure: None where a text does not fit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv6Address

INFINIBAND, ROCE = "infiniband", "roce"
COUNTERS = ("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors")
"""Of those in `counters/` the ones that tell of a bad cable or port."""


def kind(link_layer: str) -> str | None:
    return {"infiniband": INFINIBAND, "ethernet": ROCE}.get(link_layer.strip().lower())


def active(state: str) -> bool | None:
    """`4: ACTIVE`; 1 is down, 2 initialising (no subnet manager has seen it), 3 armed."""
    found = re.match(r"\s*(\d+)\s*:", state)
    return int(found[1]) == 4 if found else None


def rate_gbps(rate: str) -> float | None:
    """`200 Gb/sec (4X HDR)`."""
    found = re.match(r"\s*(\d+(?:\.\d+)?)\s*Gb/sec", rate)
    return float(found[1]) if found else None


def number(text: str) -> int | None:
    """Decimal, or hexadecimal with 0x."""
    try:
        return int(text.strip(), 0)
    except ValueError:
        return None


def numa_node(text: str) -> int | None:
    """-1 is "nobody said"."""
    found = number(text)
    return found if found is not None and found >= 0 else None


def subnet_prefix(gid: str) -> str | None:
    """The first half of an InfiniBand port's first GID."""
    try:
        return f"{int(IPv6Address(gid.strip())) >> 64:016x}"
    except ValueError:
        return None


def routed_gid(gids: Mapping[int, str], types: Mapping[int, str]) -> int | None:
    """The index of the RoCE version 2 entry that holds an IPv4 address, else a routed IPv6 one. NCCL's own default is
    a version 1 link-local entry on most hosts, which no router passes on."""
    second = None
    for index in sorted(gids):
        if types.get(index, "").strip().lower() != "roce v2":
            continue
        try:
            address = IPv6Address(gids[index].strip())
        except ValueError:
            continue
        if address.ipv4_mapped is not None and int(address.ipv4_mapped):
            return index
        if second is None and int(address) and not address.is_link_local:
            second = index
    return second


def master(sminfo: str) -> str | None:
    """The GUID of the subnet manager in charge, of `sminfo`'s one line."""
    found = re.search(r"sm guid (0x[0-9a-fA-F]+).*?state\s+(\d+)", sminfo)
    return found[1].lower() if found and found[2] == "3" else None
