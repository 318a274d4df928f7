"""The web process: Django (portal, admin API) on uvicorn, on a unix socket that the edge alone reaches.

`python -m llmgw.web` listens on the socket whose descriptor is in `LLMGW_LISTEN_FD`, else on `machine.web_socket`.
It trusts no `X-Forwarded-*` by itself: the edge strips what a client sent and sets what it verified
(`llmgw.portal.client` reads that). SIGTERM ends it within three seconds, open event streams included.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import uvicorn
from django.core.asgi import get_asgi_application

from llmgw import machine, metrics

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "llmgw.settings")
django = get_asgi_application()

from django.urls import resolve  # noqa: E402

from llmgw.portal import live  # noqa: E402 - it imports models, which Django has loaded by now

GRACE_S = 2


class Web(uvicorn.Server):
    """A server that ends its event streams first: they would otherwise hold up the whole shutdown."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        live.close()
        await super().shutdown(sockets)


def listener(environ: os._Environ[str] | dict[str, str], path: Path) -> socket.socket:
    """The supervisor's socket, or a fresh one at `path` in a folder that nobody else may enter."""
    given = environ.get("LLMGW_LISTEN_FD")
    if given:
        return socket.socket(fileno=int(given))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    if path.exists():
        if _answers(path):
            raise SystemExit(f"llmgw: another web process listens on {path}; stop it first")
        path.unlink()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.bind(str(path))
    path.chmod(0o600)
    sock.listen(512)
    return sock


def main() -> int:
    """Serve until SIGTERM or SIGINT; the exit status."""
    resolve("/")  # loads every page now: what is broken is told at the start, and the first visitor does not wait
    this = machine.require()
    sock = listener(os.environ, this.web_socket)
    metrics.push_from_thread("web", this.redis_url)
    config = uvicorn.Config(
        django,
        interface="asgi3",
        http="httptools",
        ws="none",
        lifespan="off",
        loop="uvloop",
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=GRACE_S,
    )
    Web(config).run(sockets=[sock])
    return 0


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


if __name__ == "__main__":
    sys.exit(main())
