"""llama.cpp's HTTP server, on CPU or GPU: a `llama-server` executable, or our launcher on the xllamacpp wheel.

Which of the two is told by `Paths.engine`: a Python interpreter means the launcher. llama.cpp spreads layers
over the cards of one machine; tensor parallelism and several nodes are not offered through it.
"""

from __future__ import annotations

import re
from dataclasses import replace

from agent.engine import Capabilities, Command, MetricNames, ModelFacts, Paths, Probes
from agent.engines import arithmetic, nccl
from agent.engines.rules import flag_of, flags, installed, kept_environment, refused_environment, refused_flags
from agent.wire.facts import EngineFacts, NodeFacts
from agent.wire.reason import Reason
from agent.wire.shard import Profile, ShardSpec

_LAUNCHER = "agent.launchers.llamacpp_server"
_INTERPRETER = re.compile(r"python[0-9.]*")
_FAMILIES = ("GGML_", "LLAMA_", "CUDA_", "HIP_", "HSA_", "ROCR_", "OMP_", "GOMP_", "KMP_")
_OWN_ENVIRONMENT = (
    "LLAMA_ARG_*",  # every flag has such a twin
    "LLAMA_API_KEY",
    "LLAMA_CACHE",
    "LLAMA_LOG_*",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "GGML_BACKEND_*",  # names a library to load
    "GGML_VK_VISIBLE_DEVICES",
)

_MOST_CACHE_MIB = 8192
"""llama.cpp's own default."""

_OF_CARDS = ("--tensor-split", "-ts", "--main-gpu", "-mg")
"""Written for the cards that a replica had, and wrong for others."""

_OURS = "llmgw sets it itself"
_FIELD = "set {} in the profile instead"
_OUTSIDE = "it reads, writes or serves something beside the model"
_REFUSED = {
    **dict.fromkeys(("--host", "--port", "--reuse-port", "--api-key", "--api-key-file", "--api-prefix"), _OURS),
    **dict.fromkeys(("--model", "-m", "--alias", "-a", "--metrics", "--jinja", "--no-jinja"), _OURS),
    **dict.fromkeys(("--webui", "--no-webui", "--ui", "--no-ui", "--device", "-dev", "--list-devices"), _OURS),
    **dict.fromkeys(("--ctx-size", "-c"), _FIELD.format("context_length")),
    **dict.fromkeys(("--parallel", "-np"), _FIELD.format("parallel")),
    **dict.fromkeys(("--threads", "-t", "--threads-batch", "-tb"), _FIELD.format("cpu_cores")),
    **dict.fromkeys(("--embeddings", "--embedding"), _FIELD.format("embeddings")),
    **dict.fromkeys(("--model-url", "-mu", "--hf-repo", "-hf", "-hfr", "--hf-file", "-hff"), _FIELD.format("source")),
    **dict.fromkeys(("--hf-repo-draft", "-hfd", "-hfrd", "--hf-repo-v", "-hfv", "-hfrv"), _OUTSIDE),
    **dict.fromkeys(("--hf-file-v", "-hffv", "--webui-config", "--webui-config-file"), _OUTSIDE),
    **dict.fromkeys(("--hf-token", "-hft", "--docker-repo", "-dr", "--models-dir", "--models-preset"), _OUTSIDE),
    **dict.fromkeys(("--models-max", "--models-autoload", "--no-models-autoload", "--mmproj-url", "-mmu"), _OUTSIDE),
    **dict.fromkeys(("--path", "--public-path", "--media-path", "--log-file", "--slot-save-path", "--tools"), _OUTSIDE),
    **dict.fromkeys(("--ssl-key-file", "--ssl-cert-file", "--props"), _OUTSIDE),
    **dict.fromkeys(("--ui-config", "--ui-config-file", "--ui-mcp-proxy", "--webui-mcp-proxy"), _OUTSIDE),
    **dict.fromkeys(("--mcp-servers-config", "--mcp-servers-json", "--cors-origins", "--rpc"), _OUTSIDE),
    **dict.fromkeys(("--help", "-h", "--usage", "--version", "--completion-bash"), "it ends the server at once"),
    **dict.fromkeys(
        ("--tensor-parallel-size", "-tp", "--tp", "--nnodes", "--nodes", "--node-rank"),
        "llama.cpp runs on one node here, and splits layers over its cards, not tensors",
    ),
}  # fmt: skip


class LlamaCpp:
    """See the module; every member is pure."""

    name = "llamacpp"
    capabilities = Capabilities(
        cpu=True,
        gpu=True,
        tensor_parallel=False,
        multi_node=False,
        lora=True,
        embeddings=True,
        tested_with="real",
        weights_format="gguf",
    )

    def problems(
        self, profile: Profile, facts: NodeFacts | None, model: ModelFacts | None = None
    ) -> tuple[Reason, ...]:
        found = [*refused_flags(profile.args, _REFUSED)]
        found += refused_environment(profile.env, _FAMILIES, _OWN_ENVIRONMENT)
        modes = [after for flag, after in flags(profile.args) if flag in ("--split-mode", "-sm")]
        if any(mode not in ("none", "layer") for mode in modes):
            found.append(
                Reason("tensor_parallel_refused", "llama.cpp splits a model by layers here: --split-mode none or layer")
            )
        found += arithmetic.problems("llama.cpp", self.capabilities, profile, facts, model)
        if facts is not None:
            found += installed(
                self.name, "llama.cpp", facts, "neither its release (llmgw engine list) nor the xllamacpp wheel"
            )
        return tuple(found)

    def on_cards(self, profile: Profile, gpus: int) -> Profile:
        return replace(profile, gpus=gpus, args=_without(profile.args, _OF_CARDS))

    def commands(self, shard: ShardSpec, paths: Paths, host: str) -> tuple[Command, ...]:
        profile = shard.profile
        argv = [paths.engine]
        if _INTERPRETER.fullmatch(paths.engine.rsplit("/", 1)[-1]):
            argv += ["-P", "-m", _LAUNCHER]  # -P: the working folder is the engine's own, nothing is imported from it
        argv += ["--model", paths.weights, "--alias", shard.model, "--host", host, "--port", str(shard.port)]
        argv += ["--metrics", "--jinja", "--no-webui", "--parallel", str(profile.parallel)]
        if profile.context_length is not None:
            # llama.cpp divides its context among the requests that it works on at once.
            argv += ["--ctx-size", str(profile.context_length * profile.parallel)]
        cores = profile.cpu_cores if profile.cpu_cores is not None or shard.devices else paths.cores
        if cores is not None:
            argv += ["--threads", str(cores), "--threads-batch", str(cores)]
        given = {flag for flag, _ in flags(profile.args)}
        if profile.memory_bytes is not None and not given & {"--cache-ram", "-cram"}:
            # Beside weights and KV cache llama.cpp keeps up to 8 GiB of old prompts, whatever was reserved: here at
            # most a quarter of the reservation.
            argv += ["--cache-ram", str(min(_MOST_CACHE_MIB, profile.memory_bytes // 4 // 2**20))]
        if profile.embeddings:
            argv.append("--embeddings")
            if profile.context_length is not None and not given & {"--ubatch-size", "-ub", "--batch-size", "-b"}:
                # An input to embed must fit into one physical batch.
                argv += ["--batch-size", str(profile.context_length), "--ubatch-size", str(profile.context_length)]
        env = kept_environment(profile.env, _FAMILIES, _OWN_ENVIRONMENT)
        env |= nccl.devices(shard)
        if profile.cpu_cores is None and not shard.devices:
            # Its threads wait for one another at each step. By itself libgomp turns in circles meanwhile, which takes
            # the cores from whoever shares them: five engines on two cores took 3 to 18 times as long.
            env.setdefault("OMP_WAIT_POLICY", "passive")
        if shard.devices and nccl.whole_cards(shard):
            env["GGML_VK_VISIBLE_DEVICES"] = env["CUDA_VISIBLE_DEVICES"]  # a Vulkan build sees no MIG instances
        if not shard.devices:
            argv += ["--device", "none"]
        else:
            if not given & {"--n-gpu-layers", "--gpu-layers", "-ngl"}:
                argv += ["--n-gpu-layers", "999"]
            if len(shard.devices) > 1 and not given & {"--split-mode", "-sm"}:
                argv += ["--split-mode", "layer"]
        argv += _fitting(profile.args, len(shard.devices))
        return (Command(argv=tuple(argv), env=env, secret_env={"LLAMA_API_KEY": shard.key}),)

    def serves_http(self, rank: int) -> bool:
        return rank == 0

    def probes(self, shard: ShardSpec) -> Probes:
        return Probes(alive="/health", ready="/v1/models", memory_held=bool(shard.devices))

    def metrics(self, engine: EngineFacts | None) -> MetricNames:
        return MetricNames(
            path="/metrics",
            running="llamacpp:requests_processing",
            waiting="llamacpp:requests_deferred",
            prompt_tokens_total="llamacpp:prompt_tokens_total",
            completion_tokens_total="llamacpp:tokens_predicted_total",
        )


def _fitting(args: tuple[str, ...], cards: int) -> tuple[str, ...]:
    """The arguments without a `--tensor-split` that was written for another number of cards."""
    split = [after for flag, after in flags(args) if flag in ("--tensor-split", "-ts")]
    if all(len(re.split(r"[,/]", after)) == cards for after in split):
        return args
    return _without(args, ("--tensor-split", "-ts"))


def _without(args: tuple[str, ...], unwanted: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments without some flags, each of which takes a value."""
    kept: list[str] = []
    skip = False
    for argument in args:
        if skip:
            skip = False
        elif flag_of(argument) in unwanted:
            skip = "=" not in argument
        else:
            kept.append(argument)
    return tuple(kept)
