"""Whose word counts about who is calling: nobody's but a trusted proxy's."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.origin import Origin, origin

TRUSTED = (ip_network("10.0.0.0/24"), ip_network("2001:db8::/64"), ip_network("127.0.0.1"))


@pytest.mark.parametrize(
    ("peer", "said", "address"),
    [
        ("10.0.0.1", "192.0.2.7", "192.0.2.7"),
        ("10.0.0.1", "6.6.6.6, 192.0.2.7", "192.0.2.7"),
        ("10.0.0.1", "6.6.6.6, 192.0.2.7, 10.0.0.9", "192.0.2.7"),
        ("10.0.0.1", "192.0.2.7:4711", "192.0.2.7"),
        ("10.0.0.1", "[2001:db9::1]:4711", "2001:db9::1"),
        ("10.0.0.1", "::ffff:192.0.2.7", "192.0.2.7"),
        ("::ffff:10.0.0.1", "192.0.2.7", "192.0.2.7"),
        ("2001:db8::5", "192.0.2.7", "192.0.2.7"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "unknown", "10.0.0.1"),
        ("10.0.0.1", "192.0.2.7, unknown", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.2, 10.0.0.3", "10.0.0.2"),
        ("192.0.2.7", "6.6.6.6", "192.0.2.7"),
        ("", "6.6.6.6", ""),
    ],
)
def test_the_nearest_stranger(peer: str, said: str, address: str) -> None:
    assert origin(peer, [(b"x-forwarded-for", said.encode())], TRUSTED) == Origin(address)


def test_several_headers_are_one_chain() -> None:
    headers = [(b"x-forwarded-for", b"6.6.6.6"), (b"x-forwarded-for", b"192.0.2.7")]
    assert origin("10.0.0.1", headers, TRUSTED).address == "192.0.2.7"


def test_the_protocol_is_the_last_proxys_word() -> None:
    headers = [(b"x-forwarded-for", b"192.0.2.7"), (b"x-forwarded-proto", b"http, https")]
    assert origin("10.0.0.1", headers, TRUSTED).https is True
    assert origin("192.0.2.9", headers, TRUSTED).https is None
    assert origin("10.0.0.1", [(b"x-forwarded-proto", b"gopher")], TRUSTED).https is None


@given(st.text(max_size=40))
def test_without_trust_nothing_said_counts(said: str) -> None:
    headers = [(b"x-forwarded-for", said.encode("utf-8", "replace")), (b"x-forwarded-proto", b"https")]
    assert origin("192.0.2.7", headers, ()) == origin("192.0.2.7", headers, TRUSTED) == Origin("192.0.2.7")
