"""Starts `trtllm-serve` with what it has no flag for: a key that every path but `/health` demands, and an options file
that turns its metrics on. The key comes from `LLMGW_ENGINE_KEY`.

    LLMGW_ENGINE_KEY=… python -m agent.launchers.trtllm_serve MODEL --host 127.0.0.1 --port 9000 --tp_size 2

Runs in TensorRT-LLM's interpreter and imports nothing of llmgw but the gate.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import Any

from agent.launchers.gate import Gate

OPTIONS = {"return_perf_metrics": True, "enable_iter_perf_stats": True}
"""Without these `/prometheus/metrics` does not exist, and the queue's figures do not move."""


def main(argv: list[str]) -> None:
    key = os.environ.pop("LLMGW_ENGINE_KEY", "")
    if not key:
        sys.exit("LLMGW_ENGINE_KEY is not set, and an engine without a key would answer anybody")
    from tensorrt_llm.serve import openai_server

    guard(openai_server.OpenAIServer, key)
    from tensorrt_llm.commands import serve

    with tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False) as options:
        json.dump(OPTIONS, options)  # JSON is YAML
    serve.main(["serve", *argv, "--config", options.name])


def guard(server: Any, key: str) -> None:
    """Every server of this class gets the gate when it is made; one whose application is not found does not start."""
    made = server.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        self.app.add_middleware(Gate, key=key)

    server.__init__ = init


if __name__ == "__main__":
    main(sys.argv[1:])
