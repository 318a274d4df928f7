"""vLLM: `vllm serve` on the cards of one node, or over several by its own processes (`mp`) or by Ray.

Over several nodes every one runs `vllm serve` with its rank (`mp`; the others headless), or Ray: a head and the
server at the leader, a join everywhere else. Ray runs what anybody who reaches its head sends it: it is started
without its dashboard, with a token that only the replica's ranks know (which Ray 2.52 and newer demand), and refused
on an address that is reached from outside.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import replace

from agent.engine import Capabilities, Command, MetricNames, ModelFacts, Paths, Probes, Rendezvous
from agent.engines import arithmetic, nccl
from agent.engines.addresses import is_private
from agent.engines.rules import (
    flags,
    installed,
    kept_environment,
    refused_environment,
    refused_flags,
    risky_values,
    version,
)
from agent.wire.facts import EngineFacts, NodeFacts
from agent.wire.reason import Reason
from agent.wire.shard import Gang, Profile, ShardSpec

_GATE = "agent.launchers.gate.Gate"
_INTERPRETER = re.compile(r"python[0-9.]*")
_RAY_FOLDER = "/tmp/llmgw-{}"  # noqa: S108 - every node uses the one that the leader names, and it must be short
_RENAMED = (0, 10, 2)
"""From here on the KV cache's gauge has its present name."""

_FAMILIES = ("VLLM_", *nccl.FAMILIES)
_OWN_ENVIRONMENT = (
    *nccl.OWN,
    "VLLM_API_KEY",
    "VLLM_HOST_IP",
    "VLLM_PORT",
    "VLLM_LOOPBACK_IP",
    "VLLM_TARGET_DEVICE",
    "VLLM_NO_USAGE_STATS",
    "VLLM_DO_NOT_TRACK",
    "VLLM_USAGE_*",
    "VLLM_DP_*",
    "VLLM_RAY_*",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
    "VLLM_LORA_RESOLVER_*",
    "VLLM_USE_MODELSCOPE",
    "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH",  # a server whose engine died would look healthy
    # What would open the server, or run what it is sent.
    "VLLM_SERVER_DEV_MODE",
    "VLLM_ALLOW_INSECURE_SERIALIZATION",
    "VLLM_USE_RUST_FRONTEND",
    "VLLM_GPT_OSS_*",
    "VLLM_MEDIA_CONNECTOR",
    "VLLM_NIXL_*",
    "VLLM_P2P_*",
    "VLLM_EC_*",
    "VLLM_MOONCAKE_*",
    # Files that are read or written.
    "VLLM_CACHE_ROOT",
    "VLLM_CONFIG_ROOT",
    "VLLM_ASSETS_CACHE",
    "VLLM_MEDIA_CACHE",
    "VLLM_TUNED_CONFIG_FOLDER",
    "VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR",
    "VLLM_CONFIGURE_LOGGING",
    "VLLM_TRACE_FUNCTION",
)

_OURS = "llmgw sets it itself"
_FIELD = "set {} in the profile instead"
_OUTSIDE = "it reads, writes or serves something beside the model"
_CODE = "it loads code that is not the engine's"
_ADAPTERS = "LoRA adapters are a list of the model, not arguments"
_REFUSED = {
    **dict.fromkeys(("--host", "--port", "--uds", "--api-key", "--model", "--served-model-name"), _OURS),
    **dict.fromkeys(("--headless", "--nnodes", "-n", "--node-rank", "-r", "--master-addr", "--master-port"), _OURS),
    **dict.fromkeys(("--device-ids", "--api-server-count", "-asc", "--config", "--root-path"), _OURS),
    **dict.fromkeys(("--disable-log-stats", "--kv-events-config", "--prefix-caching-hash-algo"), _OURS),
    **dict.fromkeys(("--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs", "--ssl-cert-reqs"), _OURS),
    **dict.fromkeys(("--ssl-ciphers", "--enable-ssl-refresh", "--allow-credentials", "--allowed-origins"), _OURS),
    **dict.fromkeys(("--allowed-methods", "--allowed-headers"), _OURS),
    **dict.fromkeys(("--max-model-len",), "set context_length in the model instead"),
    **dict.fromkeys(("--max-num-seqs",), _FIELD.format("parallel")),
    **dict.fromkeys(("--tensor-parallel-size", "-tp"), _FIELD.format("tp")),
    **dict.fromkeys(("--pipeline-parallel-size", "-pp"), _FIELD.format("pp")),
    **dict.fromkeys(("--distributed-executor-backend",), _FIELD.format("executor")),
    **dict.fromkeys(
        (
            "--data-parallel-size",
            "-dp",
            "--data-parallel-rank",
            "-dpn",
            "--data-parallel-start-rank",
            "-dpr",
            "--data-parallel-size-local",
            "-dpl",
            "--data-parallel-address",
            "-dpa",
            "--data-parallel-rpc-port",
            "-dpp",
            "--data-parallel-backend",
            "-dpb",
            "--data-parallel-hybrid-lb",
            "-dph",
            "--data-parallel-external-lb",
            "-dpe",
            "--data-parallel-multi-port-external-lb",
            "-dpm",
            "--data-parallel-supervisor-port",
        ),
        "several replicas are what llmgw runs: raise scaling.min instead",
    ),
    **dict.fromkeys(("--prefill-context-parallel-size", "-pcp"), "llmgw counts cards by tp and pp"),
    **dict.fromkeys(("--enable-log-requests", "--enable-log-outputs"), "what people write would stand in the log"),
    **dict.fromkeys(("--revision", "--code-revision", "--tokenizer-revision"), _FIELD.format("source")),
    **dict.fromkeys(("--enable-lora", "--lora-modules", "--default-mm-loras"), _ADAPTERS),
    **dict.fromkeys(("--trust-remote-code", "--middleware", "--worker-cls", "--worker-extension-cls"), _CODE),
    **dict.fromkeys(("--scheduler-cls", "--logits-processors", "--io-processor-plugin"), _CODE),
    **dict.fromkeys(("--tool-parser-plugin", "--reasoning-parser-plugin", "--model-class-overrides"), _CODE),
    **dict.fromkeys(("--kv-transfer-config", "--ec-transfer-config", "--ec-manager-config"), _OUTSIDE),
    **dict.fromkeys(("--weight-transfer-config", "--profiler-config", "--logging-config"), _OUTSIDE),
    **dict.fromkeys(("--log-config-file", "--otlp-traces-endpoint", "--tool-server"), _OUTSIDE),
    **dict.fromkeys(("--tokenizer", "--hf-config-path", "--hf-token", "--download-dir"), _OUTSIDE),
    **dict.fromkeys(("--chat-template", "--allowed-local-media-path", "--trust-request-chat-template"), _OUTSIDE),
    **dict.fromkeys(("--trust-request-mm-kwargs", "--model-loader-extra-config", "--kv-offloading-backend"), _OUTSIDE),
    **dict.fromkeys(("--grpc", "--grpc-port", "--enable-offline-docs", "--enable-scale-out"), _OUTSIDE),
    **dict.fromkeys(("--mm-encoder-fp8-scale-path", "--mm-encoder-fp8-scale-save-path"), _OUTSIDE),
    **dict.fromkeys(("--help", "-h", "--version", "-v"), "it ends the server at once"),
}  # fmt: skip
_KNOWN = (
    "--reasoning-parser",
    "--chat-template-content-format",
    "-q",
    "-sc",
    "-cc",
    "-ac",
    "-dc",
    "-O",
    "--tokenizer-mode",
    "--model-impl",
)
"""Flags that are fine although they resemble refused ones."""


class Vllm:
    """See the module; every member is pure."""

    name = "vllm"
    capabilities = Capabilities(
        cpu=False,
        gpu=True,
        tensor_parallel=True,
        multi_node=True,
        lora=True,
        embeddings=True,
        tested_with="real on CPU; a stand-in on GPUs and over several nodes",
        weights_format="folder",
        parallel=64,
        executors=("mp", "ray"),
        kv_events=True,
        launchers=("gate",),
        min_compute_capability=7.0,
        fills_cards=True,
    )

    def problems(
        self, profile: Profile, facts: NodeFacts | None, model: ModelFacts | None = None
    ) -> tuple[Reason, ...]:
        found = [*refused_flags(profile.args, _REFUSED, abbreviates=True, known=_KNOWN)]
        found += risky_values(profile.args)
        found += refused_environment(profile.env, _FAMILIES, _OWN_ENVIRONMENT)
        found += arithmetic.problems("vLLM", self.capabilities, profile, facts, model)
        if profile.executor == "ray":
            found += _ray_problems(profile, facts)
        if facts is not None:
            found += installed(
                self.name,
                "vLLM",
                facts,
                "its environment is built by llmgw, or named by engines.vllm.bin in agent.yaml",
            )
        return tuple(found)

    def on_cards(self, profile: Profile, gpus: int) -> Profile:
        return replace(profile, gpus=gpus, tp=None if profile.tp is None else gpus * profile.nodes // (profile.pp or 1))

    def commands(self, shard: ShardSpec, paths: Paths, host: str) -> tuple[Command, ...]:
        env = kept_environment(shard.profile.env, _FAMILIES, _OWN_ENVIRONMENT)
        env |= nccl.devices(shard) | nccl.fabric(shard, paths.interface)
        env |= {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
        if paths.weights.startswith("/"):
            env["HF_HUB_OFFLINE"] = "1"
        gang = shard.gang if shard.world_size > 1 else None
        if gang is not None:
            env["VLLM_HOST_IP"] = gang.addresses[shard.rank]
        secret = {"VLLM_API_KEY": shard.key, "LLMGW_ENGINE_KEY": shard.key}
        if gang is not None and shard.profile.executor == "ray":
            return _ray(shard, gang, paths, env, secret, tuple(_serve(shard, paths, host)))
        argv = _serve(shard, paths, host)
        if gang is not None:
            argv += ["--distributed-executor-backend", "mp", "--nnodes", str(shard.world_size)]
            argv += ["--node-rank", str(shard.rank), "--master-addr", gang.addresses[0]]
            argv += ["--master-port", str(gang.port)]
            if shard.rank:
                argv.append("--headless")
        return (Command(argv=(*argv, *shard.profile.args), env=env, secret_env=secret),)

    def serves_http(self, rank: int) -> bool:
        return rank == 0

    def probes(self, shard: ShardSpec) -> Probes:
        return Probes(memory_held=bool(shard.devices))

    def metrics(self, engine: EngineFacts | None) -> MetricNames:
        known = version(engine.version) if engine is not None else None
        old = known is not None and known < _RENAMED
        return MetricNames(
            running="vllm:num_requests_running",
            waiting="vllm:num_requests_waiting",
            kv_cache_usage="vllm:gpu_cache_usage_perc" if old else "vllm:kv_cache_usage_perc",
            prompt_tokens_total="vllm:prompt_tokens_total",
            completion_tokens_total="vllm:generation_tokens_total",
        )


def _serve(shard: ShardSpec, paths: Paths, host: str) -> list[str]:
    """The server's command line up to what ties it to other ranks and the profile's own arguments."""
    profile = shard.profile
    argv = [paths.engine]
    if _INTERPRETER.fullmatch(paths.engine.rsplit("/", 1)[-1]):
        argv += ["-P", "-m", "vllm.entrypoints.cli.main"]
    argv += ["serve", paths.weights, "--served-model-name", shard.model]
    if shard.rank == 0:
        argv += ["--host", host, "--port", str(shard.port)]
        # vLLM's own key guards what begins with /v1, and leaves /invocations, /tokenize and the metrics to anybody.
        argv += ["--middleware", _GATE, "--enable-prompt-tokens-details"]
    if profile.gpus:
        tp, pp = arithmetic.ways(profile)
        argv += ["--tensor-parallel-size", str(tp)]
        if pp > 1:
            argv += ["--pipeline-parallel-size", str(pp)]
    argv += ["--max-num-seqs", str(profile.parallel)]
    if profile.context_length is not None:
        argv += ["--max-model-len", str(profile.context_length)]
    if profile.embeddings and not {"--runner", "--task", "--convert"} & {flag for flag, _ in flags(profile.args)}:
        argv += ["--runner", "pooling"]
    return argv


def _ray(
    shard: ShardSpec, gang: Gang, paths: Paths, env: dict[str, str], secret: dict[str, str], serve: tuple[str, ...]
) -> tuple[Command, ...]:
    """Head and server at the leader, a join at the others."""
    folder = paths.engine.rpartition("/")[0]
    ray = f"{folder}/ray" if folder else "ray"
    own, head = gang.addresses[shard.rank], f"{_bracketed(gang.addresses[0])}:{gang.port}"
    # Sockets lie in Ray's folder, and their names may have 107 bytes: the shard's own folder would be too long a name.
    env = env | {
        "RAY_AUTH_MODE": "token",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": _RAY_FOLDER.format(shard.replica_id),
    }
    token = hmac.new(shard.key.encode(), b"ray", hashlib.sha256).hexdigest()
    secret = secret | {"RAY_AUTH_TOKEN": token}
    meeting = Rendezvous(gang.addresses[0], gang.port, shard.profile.startup_timeout_s)
    common = ("--node-ip-address", own, "--num-gpus", str(len(shard.devices)), "--disable-usage-stats", "--block")
    if shard.rank:
        return (Command((ray, "start", "--address", head, *common), env, secret, waits_for=meeting),)
    return (
        Command((ray, "start", "--head", "--port", str(gang.port), "--include-dashboard=false", *common), env, secret),
        Command(
            (*serve, "--distributed-executor-backend", "ray", *shard.profile.args),
            env | {"RAY_ADDRESS": head},
            secret,
            waits_for=meeting,
        ),
    )


def _ray_problems(profile: Profile, facts: NodeFacts | None) -> list[Reason]:
    if profile.nodes < 2:
        return [Reason("executor_unknown", "executor: ray ties several nodes together, and the profile runs on one")]
    if facts is not None and facts.address is not None and is_private(facts.address) is False:
        return [
            Reason(
                "ray_exposed",
                f"Ray runs what anybody who reaches its port sends it, and {facts.address} is not a private address: "
                "use executor: mp, or give the nodes addresses of a private network",
            )
        ]
    return []


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
