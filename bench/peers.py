"""Other gateways as contenders, each in a virtual environment of its own, which is made when it is first asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import processes
from bench.contenders import CannotStart, Contender, Engine, free_port, wait_until_answers
from bench.requests import MODEL, PACED

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llmgw-bench"
KEY = "sk-bench"
INSTALL_S = 900.0


@dataclass(frozen=True, slots=True)
class Peer:
    """`argv`: how it is started in front of the engines at some addresses, by the interpreter of its environment."""

    name: str
    environment: str
    packages: tuple[str, ...]
    argv: Callable[[Path, int, tuple[str, ...], Path], tuple[str, ...]]
    ready: str
    up_s: float = 60.0

    def interpreter(self, say: Callable[[str], None]) -> Path:
        """Of its environment; raises `CannotStart` where that cannot be made."""
        python = CACHE / self.environment / "bin" / "python"
        done = CACHE / self.environment / ".complete"
        if not done.exists():
            say(f"{self.name}: installing {', '.join(self.packages)} into {CACHE / self.environment}, once")
            try:
                subprocess.run([sys.executable, "-m", "venv", CACHE / self.environment], check=True, timeout=120)
                pip = [str(python), "-m", "pip", "install", "--quiet", *self.packages]
                subprocess.run(pip, check=True, timeout=INSTALL_S, capture_output=True, text=True)
            except (subprocess.SubprocessError, OSError) as e:
                said = str(getattr(e, "stderr", "") or e).strip().splitlines()
                raise CannotStart(f"{self.name} cannot be installed: {said[-1] if said else e}") from None
            done.touch()
        return python

    @contextmanager
    def running(
        self, engines: tuple[str, ...], core: int | None, folder: Path, say: Callable[[str], None]
    ) -> Iterator[Contender]:
        """In front of `engines` (their addresses); raises `CannotStart`."""
        python = self.interpreter(say)
        folder.mkdir(parents=True)
        port, log = free_port(), folder / "log"
        argv = self.argv(python, port, engines, folder)
        # No key of whoever measures may reach a peer.
        kept = {k: os.environ[k] for k in ("PATH", "HOME", "LANG") if k in os.environ}
        environment = kept | {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "*"}
        with log.open("wb") as output:
            process = processes.start(argv, core, stdout=output, stderr=output, env=environment, cwd=folder)
        try:
            wait_until_answers(self.name, process, port, self.ready, log, self.up_s)
            yield Contender(self.name, port, process.pid, KEY)
        finally:
            processes.end(process)


def addresses(engine: Engine) -> tuple[str, ...]:
    return tuple(f"http://127.0.0.1:{port}" for port in engine.ports)


def _litellm(python: Path, port: int, engines: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    deployments = "".join(
        f"  - model_name: {model}\n    litellm_params:\n      model: openai/{model}\n      api_base: {engine}/v1\n"
        "      api_key: none\n"
        for model in (MODEL, PACED)
        for engine in engines
    )
    config = folder / "config.yaml"
    config.write_text(
        f"model_list:\n{deployments}router_settings:\n  routing_strategy: least-busy\n"
        f"general_settings:\n  master_key: {KEY}\nlitellm_settings:\n  telemetry: false\n"
    )
    binary = python.parent / "litellm"
    return (str(binary), "--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1")


def _sglang(policy: str) -> Callable[[Path, int, tuple[str, ...], Path], tuple[str, ...]]:
    def argv(python: Path, port: int, engines: tuple[str, ...], folder: Path) -> tuple[str, ...]:
        there = ("--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port()))
        return (
            str(python), "-m", "sglang_router.launch_router", *there, "--policy", policy, "--log-level", "error",
            "--worker-urls", *engines,
        )  # fmt: skip

    return argv


PEERS = {
    peer.name: peer
    for peer in (
        Peer("litellm", "litellm", ("litellm[proxy]",), _litellm, "/health/liveliness", 120.0),
        Peer("sglang", "sglang", ("sglang-router==0.3.2",), _sglang("round_robin"), "/health"),
        Peer("sglang-cache", "sglang", ("sglang-router==0.3.2",), _sglang("cache_aware"), "/health"),
    )
}
