"""TensorRT-LLM's server: it knows no key, and has Prometheus' metrics only where its options say so."""

from __future__ import annotations

from typing import Any

from tests.agent.engines.standin.app import App, serve


class OpenAIServer:
    def __init__(self, llm: dict[str, Any], model: str) -> None:
        on = llm.get("return_perf_metrics") and llm.get("enable_iter_perf_stats")
        self.app = App(model, "/prometheus/metrics" if on else "/no-metrics", metrics, None, None)

    def __call__(self, host: str, port: int) -> None:
        serve(self.app, host, port)


def metrics(app: App) -> str:
    labels = f'{{engine_type="pytorch",model_name="{app.model}"}}'
    values = {
        "trtllm_num_requests_running": app.running,
        "trtllm_num_requests_waiting": 0,
        "trtllm_kv_cache_utilization": 0.5,
    }
    return "".join(f"# TYPE {name} gauge\n{name}{labels} {float(value)}\n" for name, value in values.items())
