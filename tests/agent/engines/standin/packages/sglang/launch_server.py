"""SGLang's server: the leader answers, the others keep to it; health and metrics are open, the rest is guarded."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.agent.engines.standin import ranks
from tests.agent.engines.standin.app import App, serve


def run_server(server_args: argparse.Namespace) -> None:
    if not Path(server_args.model_path).is_dir():
        sys.exit(f"{server_args.model_path} is no folder with a model")
    nodes, rank = int(server_args.nnodes or 1), int(server_args.node_rank or 0)
    if nodes > 1:
        host, _, port = server_args.dist_init_addr.rpartition(":")
        host = host.strip("[]")
        if rank:
            ranks.join(host, int(port))
        ranks.lead(host, int(port), nodes - 1)
    time.sleep(0.2)
    path = "/metrics" if server_args.enable_metrics else "/no-metrics"
    app = App(server_args.served_model_name, path, metrics, server_args.api_key, guarded)
    serve(app, server_args.host, int(server_args.port))


def guarded(path: str) -> bool:
    return not path.startswith(("/health", "/metrics"))


def metrics(app: App) -> str:
    labels = f'{{engine_type="unified",model_name="{app.model}",tp_rank="0"}}'
    values = {
        "sglang:num_running_reqs": app.running,
        "sglang:num_queue_reqs": 0,
        "sglang:token_usage": 0.25,
        "sglang:cache_hit_rate": 0.0,
        "sglang:prompt_tokens_total": 9 * app.answered,
        "sglang:generation_tokens_total": 3 * app.answered,
    }
    return "".join(f"# TYPE {name} gauge\n{name}{labels} {float(value)}\n" for name, value in values.items())
