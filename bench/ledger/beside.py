"""The same storms on LiteLLM's proxy: processes of it that share a Redis, as its documentation says.

Limits on keys need its database there; what binds without one is a deployment's requests and tokens a minute
(`usage-based-routing-v2`) and a provider's budget (`provider_budget_config`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from bench.contenders import CannotStart, free_port
from bench.ledger.world import MODEL
from bench.peers import KEY, PEERS
from llmgw.up import redis as redis_server

UP_S = 180.0


@contextmanager
def litellm(folder: Path, edges: int, engine_port: int, limits: dict[str, float]) -> Iterator[list[int]]:
    """The ports of `edges` proxies. `limits`: `rpm`, `tpm`, or `budget` in units. Raises `CannotStart`."""
    python = PEERS["litellm"].interpreter(lambda said: print(f"bench: {said}", file=sys.stderr, flush=True))
    redis_port, ports = free_port(), [free_port() for _ in range(edges)]
    config = folder / "config.yaml"
    config.write_text(_config(engine_port, redis_port, limits))
    processes = []
    binary = redis_server.binary()
    if binary is None:
        raise CannotStart("the storm needs a Redis")
    kept = {k: os.environ[k] for k in ("PATH", "HOME", "LANG") if k in os.environ}
    environment = kept | {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "*"}
    try:
        with (folder / "log").open("wb") as log:
            redis = [str(binary), "--port", str(redis_port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
            processes.append(subprocess.Popen(redis, stdout=subprocess.DEVNULL))
            for port in ports:
                argv = [
                    str(python.parent / "litellm"),
                    "--config",
                    str(config),
                    "--host",
                    "127.0.0.1",
                    "--port",
                    str(port),
                ]
                processes.append(subprocess.Popen(argv, env=environment, cwd=folder, stdout=log, stderr=log))
        deadline = time.monotonic() + UP_S
        for port in ports:
            while not _up(port):
                if time.monotonic() > deadline:
                    raise CannotStart(f"LiteLLM did not come up:\n{(folder / 'log').read_text()[-2000:]}")
                time.sleep(0.3)
        yield ports
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _up(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health/liveliness", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


def _config(engine_port: int, redis_port: int, limits: dict[str, float]) -> str:
    own = "".join(f"      {name}: {int(limits[name])}\n" for name in ("rpm", "tpm") if name in limits)
    budget = (
        f"  provider_budget_config:\n    openai:\n      budget_limit: {limits['budget']}\n      time_period: 1d\n"
        if "budget" in limits
        else ""
    )
    strategy = "simple-shuffle" if budget else "usage-based-routing-v2"
    return (
        f"model_list:\n  - model_name: {MODEL}\n    litellm_params:\n      model: openai/{MODEL}\n"
        f"      api_base: http://127.0.0.1:{engine_port}/v1\n      api_key: none\n"
        f"      input_cost_per_token: 0.000001\n      output_cost_per_token: 0.000001\n{own}"
        f"router_settings:\n  routing_strategy: {strategy}\n  enable_pre_call_checks: true\n  num_retries: 0\n"
        f"  disable_cooldowns: true\n  redis_host: 127.0.0.1\n  redis_port: {redis_port}\n{budget}"
        f"general_settings:\n  master_key: {KEY}\nlitellm_settings:\n  telemetry: false\n"
    )
