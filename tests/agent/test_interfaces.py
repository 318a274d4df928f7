"""Which network device holds an address."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from agent.node.interfaces import holding


def test_loopback_is_where_it_is_everywhere() -> None:
    assert holding("127.0.0.1") == "lo"


def test_the_address_that_this_machine_calls_from() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no network")
        address = asked.getsockname()[0]
    assert holding(address) in {name for _, name in socket.if_nameindex()}


@pytest.mark.parametrize("address", ["192.0.2.77", "gpu01", "", "2001:db8::77"])
def test_an_address_of_somebody_else(address: str) -> None:
    assert holding(address) is None


def test_version_6_is_read_from_the_kernels_table(tmp_path: Path) -> None:
    table = tmp_path / "proc/net/if_inet6"
    table.parent.mkdir(parents=True)
    table.write_text(
        "00000000000000000000000000000001 01 80 10 80       lo\nfd000000000000000000000000000001 02 40 00 80     ens5\n"
    )
    assert holding("fd00::1", tmp_path) == "ens5"
    assert holding("[fd00::1]", tmp_path) == "ens5"
    assert holding("fd00::2", tmp_path) is None
    assert holding("fd00::1", tmp_path / "absent") is None
