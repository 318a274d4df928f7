"""Stands in for `ray start`: a head that counts the cards of who joins with its token, and joins that end with it."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import threading


def main() -> None:
    found = argparse.ArgumentParser("ray", allow_abbrev=False)
    found.add_argument("command", choices=["start"])
    found.add_argument("--head", action="store_true")
    found.add_argument("--address")
    found.add_argument("--port", type=int)
    found.add_argument("--node-ip-address", required=True)
    found.add_argument("--num-gpus", type=int, required=True)
    found.add_argument("--include-dashboard")
    found.add_argument("--disable-usage-stats", action="store_true")
    found.add_argument("--block", action="store_true")
    given = found.parse_args()
    if os.environ.get("RAY_AUTH_MODE") != "token" or not os.environ.get("RAY_AUTH_TOKEN"):
        sys.exit("no token: anybody could join")
    if given.head:
        if given.include_dashboard != "false":
            sys.exit("the dashboard is on")
        _head(given.node_ip_address, given.port, given.num_gpus)
    else:
        _join(given.address, given.num_gpus)


def cards_of(address: str) -> int:
    """Asked by the server, which holds the same token."""
    with socket.create_connection(_split(address), timeout=5) as head:
        head.sendall(f"{os.environ['RAY_AUTH_TOKEN']} count\n".encode())
        return int(head.recv(64) or b"0")


def _head(host: str, port: int, own: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family)
    cards = {id(listener): own}
    while True:
        peer, _ = listener.accept()
        threading.Thread(target=_meet, args=(peer, cards), daemon=True).start()


def _meet(peer: socket.socket, cards: dict[int, int]) -> None:
    with peer:
        token, _, said = peer.recv(256).decode().strip().partition(" ")
        if token != os.environ["RAY_AUTH_TOKEN"]:
            return
        if said == "count":
            peer.sendall(str(sum(cards.values())).encode())
            return
        cards[id(peer)] = int(said)
        while peer.recv(64):
            pass
        cards.pop(id(peer))


def _join(address: str, cards: int) -> None:
    try:
        head = socket.create_connection(_split(address), timeout=5)
    except OSError as e:
        sys.exit(f"no Ray head at {address}: {e}")
    head.settimeout(None)
    head.sendall(f"{os.environ['RAY_AUTH_TOKEN']} {cards}\n".encode())
    while head.recv(64):
        pass
    sys.exit("the head is gone")


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


if __name__ == "__main__":
    main()
