"""Starts SGLang's server with the key from `LLMGW_ENGINE_KEY`: SGLang itself takes it as an argument alone, and
arguments can be read by everybody on the node.

    LLMGW_ENGINE_KEY=… python -m agent.launchers.sglang_server --model-path DIR --host 127.0.0.1 --port 9000

Runs in SGLang's interpreter and imports nothing of llmgw.
"""

from __future__ import annotations

import os
import sys
from typing import Any


def main(argv: list[str]) -> None:
    key = os.environ.pop("LLMGW_ENGINE_KEY", "")
    if not key:
        sys.exit("LLMGW_ENGINE_KEY is not set, and an engine without a key would answer anybody")
    from sglang.srt.server_args import prepare_server_args

    arguments = prepare_server_args(argv)
    # Set on what was parsed, so that it stands on no command line; it reaches the server's processes by pickle.
    arguments.api_key = key
    try:
        _serve(arguments)
    finally:
        _end_children()


def _serve(arguments: Any) -> None:
    try:
        from sglang.launch_server import run_server
    except ImportError:
        from sglang.srt.entrypoints.http_server import launch_server as run_server
    run_server(arguments)


def _end_children() -> None:
    """As SGLang's own entry does: its schedulers outlive it otherwise, with the cards' memory."""
    try:
        from sglang.srt.utils import kill_process_tree
    except ImportError:
        return
    kill_process_tree(os.getpid(), include_parent=False)


if __name__ == "__main__":
    main(sys.argv[1:])
