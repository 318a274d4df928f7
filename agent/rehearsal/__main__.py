"""`python -m agent.rehearsal FLEET.json`: the process of a pretended fleet; `llmgw rehearse` starts it."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import sys
from pathlib import Path

import msgspec

from agent.rehearsal.fleet import serve
from agent.rehearsal.values import Fleet


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for who began this: the end of its input tells
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    logging.basicConfig(level=logging.ERROR, format="%(asctime)s %(message)s", stream=sys.stderr)
    fleet = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Fleet)
    asyncio.run(serve(fleet))


if __name__ == "__main__":
    main()
