"""TensorRT-LLM, which an operator brings: `trtllm-serve` on the cards of one node, through our launcher, which makes
it demand the key (it knows none itself) and turns its metrics on.

Written against the documented command line, server and metrics of 1.3, and tested with a stand-in.
"""

from __future__ import annotations

from dataclasses import replace

from agent.engine import Capabilities, Command, MetricNames, ModelFacts, Paths, Probes
from agent.engines import arithmetic, nccl
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
from agent.wire.shard import Profile, ShardSpec

_LAUNCHER = "agent.launchers.trtllm_serve"
_LEAST = (1, 3)
_FAMILIES = ("TRTLLM_", "TLLM_", *nccl.FAMILIES)
_OWN_ENVIRONMENT = (
    *nccl.OWN,
    "TRTLLM_NO_USAGE_STATS",
    "TRTLLM_USAGE_*",
    "TRTLLM_ENABLE_RENDER_ENDPOINTS",
    "TRTLLM_KVCACHE_*",
    "TRTLLM_SERVER_*",
    "TLLM_LOG_FILE*",
    "TLLM_PROFILE_*",
    "TLLM_TORCH_PROFILE_TRACE",
    "TLLM_SPAWN_*",
    "TLLM_LLMAPI_*",
    "TLLM_EXECUTOR_*",
    "TLLM_WORKER_*",
    "TLLM_DISAGG_*",
    "TRTLLM_DISAGG_*",
)

_OURS = "llmgw sets it itself"
_FIELD = "set {} in the profile instead"
_OUTSIDE = "it reads, writes or serves something beside the model"
_CODE = "it loads code that is not the engine's"
_SET = "the options file is llmgw's: change a setting with --set PATH=VALUE"
_UNGUARDED = "it would serve without the key"
_REFUSED = {
    **dict.fromkeys(("--host", "--port", "--served-model-name", "--gpus-per-node", "--backend"), _OURS),
    **dict.fromkeys(("--config", "--extra-llm-api-options"), _SET),
    **dict.fromkeys(("--tp-size", "--tensor-parallel-size"), _FIELD.format("tp")),
    **dict.fromkeys(("--pp-size", "--pipeline-parallel-size"), _FIELD.format("pp")),
    **dict.fromkeys(("--cp-size", "--context-parallel-size"), "llmgw counts cards by tp and pp"),
    **dict.fromkeys(("--max-seq-len",), "set context_length in the model instead"),
    **dict.fromkeys(("--revision",), _FIELD.format("source")),
    **dict.fromkeys(("--trust-remote-code", "--middleware", "--custom-module-dirs", "--custom-tokenizer"), _CODE),
    **dict.fromkeys(("--tokenizer", "--chat-template", "--otlp-traces-endpoint", "--media-io-kwargs"), _OUTSIDE),
    **dict.fromkeys(("--metadata-server-config-file", "--server-role", "--disagg-cluster-uri"), _OUTSIDE),
    **dict.fromkeys(("--grpc", "--num-serve-frontends"), _UNGUARDED),
    **dict.fromkeys(("--allow-request-chat-template", "--tool-server"), _OUTSIDE),
    **dict.fromkeys(("--help", "-h", "--version"), "it ends the server at once"),
}  # fmt: skip
_KNOWN = ("--max-batch-size",)
_REFUSED_SETTINGS = (
    "model",
    "tokenizer",
    "custom_tokenizer",
    "tokenizer_revision",
    "postprocess_tokenizer_dir",
    "revision",
    "trust_remote_code",
    "backend",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "context_parallel_size",
    "gpus_per_node",
    "max_seq_len",
    "return_perf_metrics",
    "enable_iter_perf_stats",
    "otlp_traces_endpoint",
    "kv_connector_config",
    "checkpoint_loader",
    "orchestrator_type",
    "ray_worker_extension_cls",
    "mpi_session",
    "env_overrides",
    "disagg_cluster",
    "cache_transceiver_config",
    "telemetry_config",
    "perf_metrics_max_requests",
)
"""What `--set` must not reach: what llmgw sets itself, what loads code, what talks to others."""


class TrtLlm:
    """See the module; every member is pure."""

    name = "trtllm"
    capabilities = Capabilities(
        cpu=False,
        gpu=True,
        tensor_parallel=True,
        multi_node=False,
        lora=False,
        embeddings=False,
        tested_with="a stand-in",
        weights_format="folder",
        parallel=64,
        launchers=("gate", "trtllm_serve"),
        min_compute_capability=8.0,
        fills_cards=True,
    )

    def problems(
        self, profile: Profile, facts: NodeFacts | None, model: ModelFacts | None = None
    ) -> tuple[Reason, ...]:
        found = [*refused_flags(profile.args, _REFUSED, abbreviates=True, known=_KNOWN)]
        found += risky_values(profile.args)
        found += _settings(profile)
        found += refused_environment(profile.env, _FAMILIES, _OWN_ENVIRONMENT)
        if profile.nodes > 1:
            found.append(
                Reason(
                    "one_node",
                    f"TensorRT-LLM over several nodes is started by MPI or Slurm, which llmgw does not do, and nodes: "
                    f"{profile.nodes} was asked for: use vllm or sglang",
                )
            )
        found += (
            p
            for p in arithmetic.problems("TensorRT-LLM", self.capabilities, profile, facts, model)
            if p.code != "one_node"
        )
        if facts is not None:
            how = "it is brought by you: name its interpreter by engines.trtllm.python in agent.yaml"
            found += installed(self.name, "TensorRT-LLM", facts, how)
            found += _too_old(facts)
        return tuple(found)

    def on_cards(self, profile: Profile, gpus: int) -> Profile:
        return replace(profile, gpus=gpus, tp=None if profile.tp is None else gpus // (profile.pp or 1))

    def commands(self, shard: ShardSpec, paths: Paths, host: str) -> tuple[Command, ...]:
        profile = shard.profile
        tp, pp = arithmetic.ways(profile)
        argv = [paths.engine, "-P", "-m", _LAUNCHER, paths.weights, "--served_model_name", shard.model]
        argv += ["--host", host, "--port", str(shard.port), "--tp_size", str(tp)]
        if pp > 1:
            argv += ["--pp_size", str(pp)]
        if profile.context_length is not None:
            argv += ["--max_seq_len", str(profile.context_length)]
        if "--max-batch-size" not in {flag for flag, _ in flags(profile.args)}:
            argv += ["--max_batch_size", str(profile.parallel)]
        env = kept_environment(profile.env, _FAMILIES, _OWN_ENVIRONMENT)
        env |= nccl.devices(shard)
        env |= {"TRTLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
        if paths.weights.startswith("/"):
            env["HF_HUB_OFFLINE"] = "1"
        return (Command(argv=(*argv, *profile.args), env=env, secret_env={"LLMGW_ENGINE_KEY": shard.key}),)

    def serves_http(self, rank: int) -> bool:
        return rank == 0

    def probes(self, shard: ShardSpec) -> Probes:
        return Probes(memory_held=bool(shard.devices))

    def metrics(self, engine: EngineFacts | None) -> MetricNames:
        return MetricNames(
            path="/prometheus/metrics",  # its /metrics is JSON
            running="trtllm_num_requests_running",
            waiting="trtllm_num_requests_waiting",
            kv_cache_usage="trtllm_kv_cache_utilization",
        )


def _settings(profile: Profile) -> list[Reason]:
    """What `--set PATH=VALUE` must not change."""
    found = []
    given = list(profile.args)
    for i, argument in enumerate(given):
        if argument == "--set":
            written = given[i + 1] if i + 1 < len(given) else ""
        elif argument.startswith("--set="):
            written = argument.removeprefix("--set=")
        else:
            continue
        path = written.split("=", 1)[0].strip().replace("-", "_").lower()
        if path.split(".", 1)[0] in _REFUSED_SETTINGS:
            found.append(Reason("flag_refused", f"--set {path[:80]} is refused: llmgw sets it, or it reaches beyond"))
    return found


def _too_old(facts: NodeFacts) -> list[Reason]:
    mine = [e for e in facts.engines or () if e.name == TrtLlm.name and not e.problem]
    known = [(e.version, v) for e in mine if (v := version(e.version)) is not None]
    if not known or len(known) < len(mine) or any(v >= _LEAST for _, v in known):
        return []
    return [
        Reason(
            "engine_too_old",
            f"TensorRT-LLM 1.3 or newer is needed, and the node has {known[0][0]}: older ones have no name to serve a "
            "model by, and publish none of the figures that the router reads",
        )
    ]
