"""Stands in for `vllm`: takes the flags of vLLM 0.32 as its own parser lists them (recorded), abbreviations included,
guards what begins with /v1 by VLLM_API_KEY, and loads the middleware that it is told to.

`vllm-loading SECONDS` in an argument `--additional-config` makes it load as long.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from pathlib import Path

from tests.agent.engines.standin import ranks
from tests.agent.engines.standin.app import App, serve

RECORDED = Path(__file__).parents[1] / "recorded" / "vllm-0.32-flags.json"


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser("vllm")
    found.add_argument("command", choices=["serve"])
    found.add_argument("model")
    for flag, values in json.loads(RECORDED.read_text())["flags"].items():
        if flag in ("-h", "--help"):
            continue
        if values:
            found.add_argument(flag, dest=flag.lstrip("-").replace("-", "_"))
        else:
            found.add_argument(flag, dest=flag.lstrip("-").replace("-", "_"), action="store_true")
    return found


def metrics(app: App) -> str:
    labels = f'{{engine="0",model_name="{app.model}"}}'
    values = {
        "vllm:num_requests_running": app.running,
        "vllm:num_requests_waiting": 0,
        "vllm:kv_cache_usage_perc": 0.125,
        "vllm:prompt_tokens_total": 9 * app.answered,
        "vllm:generation_tokens_total": 3 * app.answered,
    }
    return "".join(f"# TYPE {name} gauge\n{name}{labels} {value}\n" for name, value in values.items())


def main() -> None:
    given = parser().parse_args()
    if not Path(given.model).is_dir():
        sys.exit(f"{given.model} is no folder with a model")
    nodes, rank = int(given.nnodes or 1), int(given.node_rank or 0)
    if given.distributed_executor_backend == "ray":
        _ray_has(int(given.tensor_parallel_size or 1) * int(given.pipeline_parallel_size or 1))
    if rank:
        if not given.headless:
            sys.exit("a worker has to be headless")
        ranks.join(given.master_addr, int(given.master_port))
    if nodes > 1:
        ranks.lead(given.master_addr, int(given.master_port), nodes - 1)
    time.sleep(float(os.environ.get("VLLM_LOADING_S", "0.2")))
    key = os.environ.get("VLLM_API_KEY")
    app = App(given.served_model_name or given.model, "/metrics", metrics, key, lambda path: path.startswith("/v1"))
    if given.middleware:
        module, _, name = given.middleware.rpartition(".")
        app.add_middleware(getattr(importlib.import_module(module), name))
    serve(app, given.host or "0.0.0.0", int(given.port or 8000))


def _ray_has(cards: int) -> None:
    """Waits, as vLLM does, until Ray's nodes have the cards that it needs."""
    from tests.agent.engines.standin.ray import cards_of

    until = time.monotonic() + 30
    while (found := cards_of(os.environ["RAY_ADDRESS"])) < cards:
        if time.monotonic() > until:
            sys.exit(f"the Ray cluster has {found} cards of {cards}")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
