"""How the stand-ins' ranks meet: the leader listens, the others connect, and whoever loses the others ends."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time


def lead(host: str, port: int, others: int, timeout_s: float = 30.0) -> None:
    """Returns when every other rank has come; the process ends when one of them goes."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family)
    listener.settimeout(timeout_s)
    met: list[socket.socket] = []
    while len(met) < others:
        try:
            peer, _ = listener.accept()
        except TimeoutError:
            sys.exit(f"only {len(met)} of {others} ranks came within {timeout_s:g} s")
        # Somebody who only looks whether we listen says nothing.
        peer.settimeout(1.0)
        try:
            said = peer.recv(64)
        except TimeoutError:
            said = b""
        if said == b"rank\n":
            peer.settimeout(None)
            met.append(peer)
        else:
            peer.close()
    for peer in met:
        peer.sendall(b"go\n")
        threading.Thread(target=_watch, args=(peer, "a rank"), daemon=True).start()


def join(host: str, port: int, timeout_s: float = 30.0) -> None:
    """Meets the leader, as often as it takes, and returns when that goes away."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            leader = socket.create_connection((host, port), timeout=timeout_s)
            break
        except OSError:
            if time.monotonic() > until:
                sys.exit(f"no leader at {host}:{port} within {timeout_s:g} s")
            time.sleep(0.05)
    leader.settimeout(None)
    leader.sendall(b"rank\n")
    while leader.recv(64):
        pass
    sys.exit("the leader is gone")


def _watch(peer: socket.socket, who: str) -> None:
    while peer.recv(64):
        pass
    sys.stderr.write(f"{who} is gone\n")
    sys.stderr.flush()
    os._exit(1)
