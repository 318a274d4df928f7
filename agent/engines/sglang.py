"""SGLang: its HTTP server through our launcher, which takes the key from the environment: SGLang itself knows it only
as an argument, and arguments can be read by everybody on the node.

Over several nodes every one runs the same command with its rank; the leader alone answers requests.
"""

from __future__ import annotations

from dataclasses import replace

from agent.engine import Capabilities, Command, MetricNames, ModelFacts, Paths, Probes
from agent.engines import arithmetic, nccl
from agent.engines.rules import installed, kept_environment, refused_environment, refused_flags, risky_values
from agent.wire.facts import EngineFacts, NodeFacts
from agent.wire.reason import Reason
from agent.wire.shard import Profile, ShardSpec

_LAUNCHER = "agent.launchers.sglang_server"
_FAMILIES = ("SGLANG_", "SGL_", *nccl.FAMILIES)
_OWN_ENVIRONMENT = (
    *nccl.OWN,
    "SGLANG_API_KEY",
    "SGLANG_ADMIN_*",
    "SGLANG_HOST_IP",
    "SGLANG_PORT",
    "SGLANG_USE_MODELSCOPE",
    "SGLANG_ENABLE_GRPC*",
    "SGLANG_PLUGINS*",
    "SGLANG_EXTERNAL_*",
    "SGLANG_ALLOW_OVERWRITE_*",
    "SGLANG_BLOCK_NONZERO_*",
    "SGLANG_TORCH_PROFILER_DIR",
    "SGLANG_LOGGING_CONFIG_PATH",
    "SGLANG_CACHE_DIR",
    "SGLANG_DG_CACHE_DIR",
    "SGLANG_CRASH_*",
    "SGLANG_DUMP_*",
    "SGLANG_RECORD_*",
    "SGLANG_MOONCAKE_*",
    "SGLANG_HICACHE_*",
    "SGLANG_LOG_REQUESTS*",
)

_OURS = "llmgw sets it itself"
_FIELD = "set {} in the profile instead"
_OUTSIDE = "it reads, writes or serves something beside the model"
_CODE = "it loads code that is not the engine's"
_ADAPTERS = "LoRA adapters are a list of the model, not arguments"
_REFUSED = {
    **dict.fromkeys(("--host", "--port", "--api-key", "--admin-api-key", "--served-model-name"), _OURS),
    **dict.fromkeys(("--model-path", "--model", "--config", "--fastapi-root-path", "--enable-metrics"), _OURS),
    **dict.fromkeys(("--dist-init-addr", "--nccl-init-addr", "--nnodes", "--node-rank", "--nccl-port"), _OURS),
    **dict.fromkeys(("--device", "--base-gpu-id", "--gpu-id-step", "--kv-events-config", "--use-ray"), _OURS),
    **dict.fromkeys(("--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs", "--enable-ssl-refresh"), _OURS),
    **dict.fromkeys(("--context-length",), "set context_length in the model instead"),
    **dict.fromkeys(("--max-running-requests",), _FIELD.format("parallel")),
    **dict.fromkeys(("--tensor-parallel-size", "--tp-size", "--tp"), _FIELD.format("tp")),
    **dict.fromkeys(("--pipeline-parallel-size", "--pp-size", "--pp"), _FIELD.format("pp")),
    **dict.fromkeys(("--is-embedding",), "set capabilities: {embeddings: true} in the model instead"),
    **dict.fromkeys(("--revision",), _FIELD.format("source")),
    **dict.fromkeys(("--enable-lora", "--lora-paths"), _ADAPTERS),
    **dict.fromkeys(("--trust-remote-code", "--custom-weight-loader", "--enable-custom-logit-processor"), _CODE),
    **dict.fromkeys(("--custom-sigquit-handler", "--warmups", "--forward-hooks"), _CODE),
    **dict.fromkeys(("--tokenizer-path", "--chat-template", "--completion-template", "--tool-server"), _OUTSIDE),
    **dict.fromkeys(("--file-storage-path", "--download-dir", "--model-checksum", "--kt-weight-path"), _OUTSIDE),
    **dict.fromkeys(("--model-loader-extra-config", "--quantization-param-path", "--rl-quant-profile"), _OUTSIDE),
    **dict.fromkeys(("--modelopt-checkpoint-restore-path", "--modelopt-checkpoint-save-path"), _OUTSIDE),
    **dict.fromkeys(("--modelopt-export-path", "--delete-ckpt-after-loading", "--crash-dump-folder"), _OUTSIDE),
    **dict.fromkeys(("--log-requests-target", "--export-metrics-to-file"), _OUTSIDE),
    **dict.fromkeys(("--export-metrics-to-file-dir", "--otlp-traces-endpoint", "--enable-trace"), _OUTSIDE),
    **dict.fromkeys(("--debug-tensor-dump-output-folder", "--debug-tensor-dump-input-file"), _OUTSIDE),
    **dict.fromkeys(("--debug-tensor-dump-inject", "--dllm-algorithm-config", "--encoder-urls"), _OUTSIDE),
    **dict.fromkeys(("--disaggregation-mode", "--disaggregation-bootstrap-port", "--encoder-only"), _OUTSIDE),
    **dict.fromkeys(("--hicache-storage-backend-extra-config", "--hicache-storage-backend"), _OUTSIDE),
    **dict.fromkeys(("--remote-instance-weight-loader-seed-instance-ip", "--grpc-port"), _OUTSIDE),
    **dict.fromkeys(("--grpc-mode", "--smg-grpc-mode", "--enable-http2"), _OUTSIDE),
    **dict.fromkeys(("--log-requests",), "what people write would stand in the log"),
    **dict.fromkeys(("--attention-context-parallel-size", "--attn-cp-size"), "llmgw counts cards by tp and pp"),
    **dict.fromkeys(("--help", "-h", "--version"), "it ends the server at once"),
    **dict.fromkeys(
        ("--data-parallel-size", "--dp-size", "--dp"), "several replicas are what llmgw runs: raise scaling.min instead"
    ),
}  # fmt: skip
_KNOWN = (
    "--quantization",
    "--modelopt-quant",
    "--tp-comm-overlap",
    "--log-requests-level",
    "--log-requests-format",
    "--model-impl",
)
"""Flags that are fine although they resemble refused ones."""


class SgLang:
    """See the module; every member is pure."""

    name = "sglang"
    capabilities = Capabilities(
        cpu=False,
        gpu=True,
        tensor_parallel=True,
        multi_node=True,
        lora=False,
        embeddings=True,
        tested_with="a stand-in",
        weights_format="folder",
        parallel=64,
        launchers=("sglang_server",),
        min_compute_capability=7.5,
        fills_cards=True,
    )

    def problems(
        self, profile: Profile, facts: NodeFacts | None, model: ModelFacts | None = None
    ) -> tuple[Reason, ...]:
        found = [*refused_flags(profile.args, _REFUSED, abbreviates=True, known=_KNOWN)]
        found += risky_values(profile.args)
        found += refused_environment(profile.env, _FAMILIES, _OWN_ENVIRONMENT)
        found += arithmetic.problems("SGLang", self.capabilities, profile, facts, model)
        if facts is not None:
            how = "name its version in the settings (engines: {sglang: …}), or engines.sglang.python in agent.yaml"
            found += installed(self.name, "SGLang", facts, how)
        return tuple(found)

    def on_cards(self, profile: Profile, gpus: int) -> Profile:
        return replace(profile, gpus=gpus, tp=None if profile.tp is None else gpus * profile.nodes // (profile.pp or 1))

    def commands(self, shard: ShardSpec, paths: Paths, host: str) -> tuple[Command, ...]:
        profile = shard.profile
        argv = [paths.engine, "-P", "-m", _LAUNCHER, "--model-path", paths.weights]
        argv += ["--served-model-name", shard.model, "--host", host, "--port", str(shard.port)]
        argv += ["--enable-metrics", "--enable-cache-report", "--max-running-requests", str(profile.parallel)]
        if profile.gpus:
            tp, pp = arithmetic.ways(profile)
            argv += ["--tp-size", str(tp)]
            if pp > 1:
                argv += ["--pp-size", str(pp)]
        if profile.context_length is not None:
            argv += ["--context-length", str(profile.context_length)]
        if profile.embeddings:
            argv.append("--is-embedding")
        if shard.gang is not None and shard.world_size > 1:
            leader = shard.gang.addresses[0]
            meeting = f"[{leader}]:{shard.gang.port}" if ":" in leader else f"{leader}:{shard.gang.port}"
            argv += ["--dist-init-addr", meeting, "--nnodes", str(shard.world_size), "--node-rank", str(shard.rank)]
        env = kept_environment(profile.env, _FAMILIES, _OWN_ENVIRONMENT)
        env |= nccl.devices(shard) | nccl.fabric(shard, paths.interface)
        env |= {"DO_NOT_TRACK": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
        if paths.weights.startswith("/"):
            env["HF_HUB_OFFLINE"] = "1"
        if shard.gang is not None and shard.world_size > 1:
            env["SGLANG_HOST_IP"] = shard.gang.addresses[shard.rank]
        return (Command(argv=(*argv, *profile.args), env=env, secret_env={"LLMGW_ENGINE_KEY": shard.key}),)

    def serves_http(self, rank: int) -> bool:
        return rank == 0

    def probes(self, shard: ShardSpec) -> Probes:
        return Probes(memory_held=bool(shard.devices))

    def metrics(self, engine: EngineFacts | None) -> MetricNames:
        return MetricNames(
            running="sglang:num_running_reqs",
            waiting="sglang:num_queue_reqs",
            kv_cache_usage="sglang:token_usage",
            prompt_tokens_total="sglang:prompt_tokens_total",
            completion_tokens_total="sglang:generation_tokens_total",
        )
