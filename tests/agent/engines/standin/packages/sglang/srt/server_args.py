"""The arguments of SGLang's server, as its documentation lists them, read by argparse as it does."""

from __future__ import annotations

import argparse

_VALUES = (
    "--model-path --model,--tokenizer-path,--tokenizer-mode,--tokenizer-worker-num,--load-format,"
    "--model-loader-extra-config,--context-length,--revision,--model-impl,--host,--port,--fastapi-root-path,--warmups,"
    "--nccl-port,--dtype,--quantization,--quantization-param-path,--kv-cache-dtype,--mem-fraction-static,"
    "--max-running-requests,--max-queued-requests,--max-total-tokens,--chunked-prefill-size,--max-prefill-tokens,"
    "--schedule-policy,--schedule-conservativeness,--page-size,--device,--tensor-parallel-size --tp-size --tp,"
    "--pipeline-parallel-size --pp-size,--stream-interval,--random-seed,--watchdog-timeout,--dist-timeout,"
    "--download-dir,"
    "--base-gpu-id,--gpu-id-step,--log-level,--log-level-http,--log-requests-level,--log-requests-format,"
    "--crash-dump-folder,--decode-log-interval,--kv-events-config,--otlp-traces-endpoint,--api-key,--admin-api-key,"
    "--served-model-name,--chat-template,--completion-template,--file-storage-path,--reasoning-parser,"
    "--tool-call-parser,--tool-server,--sampling-defaults,--data-parallel-size --dp-size,"
    "--dist-init-addr --nccl-init-addr,--nnodes,--node-rank,--json-model-override-args,--lora-paths,--max-lora-rank,"
    "--attention-backend,--sampling-backend,--grammar-backend,--cpu-offload-gb,--cuda-graph-max-bs,--torchao-config"
)
_SWITCHES = (
    "--skip-tokenizer-init --trust-remote-code --is-embedding --enable-multimodal --grpc-mode --skip-server-warmup "
    "--log-requests --enable-metrics --enable-metrics-for-all-schedulers --collect-tokens-histogram --enable-trace "
    "--enable-cache-report --enable-lora --disable-radix-cache --disable-cuda-graph --disable-custom-all-reduce "
    "--enable-mixed-chunk --enable-dp-attention --enable-torch-compile --enable-p2p-check --delete-ckpt-after-loading "
    "--enable-custom-logit-processor --allow-auto-truncate"
)


def prepare_server_args(argv: list[str]) -> argparse.Namespace:
    found = argparse.ArgumentParser("sglang")
    for names in _VALUES.split(","):
        found.add_argument(*names.split(), dest=names.split()[0].lstrip("-").replace("-", "_"))
    for name in _SWITCHES.split():
        found.add_argument(name, action="store_true")
    return found.parse_args(argv)
