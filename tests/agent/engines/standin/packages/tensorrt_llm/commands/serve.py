"""`trtllm-serve`, with the options of 1.3 as its documentation lists them; none can be abbreviated."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from tensorrt_llm.serve.openai_server import OpenAIServer

_VALUES = (
    "--tokenizer,--custom_tokenizer,--host,--port,--backend,--custom_module_dirs,--log_level,--max_beam_width,"
    "--max_batch_size,--max_num_tokens,--max_seq_len,--tensor_parallel_size --tp_size,"
    "--pipeline_parallel_size --pp_size,--context_parallel_size --cp_size,--moe_expert_parallel_size --ep_size,"
    "--gpus_per_node,--free_gpu_memory_fraction --kv_cache_free_gpu_memory_fraction,--num_postprocess_workers,"
    "--revision,--config --extra_llm_api_options,--reasoning_parser,--tool_parser,--metadata_server_config_file,"
    "--server_role,--otlp_traces_endpoint,--disagg_cluster_uri,--media_io_kwargs,--chat_template,--served_model_name,"
    "--middleware,--num_serve_frontends"
)
_SWITCHES = "--trust_remote_code --enable_chunked_prefill --grpc --fail_fast_on_attention_window_too_large"


def main(args: list[str] | None = None) -> None:
    found = argparse.ArgumentParser("trtllm-serve", allow_abbrev=False)
    found.add_argument("command", choices=["serve"])
    found.add_argument("model")
    for names in _VALUES.split(","):
        found.add_argument(*names.split(), dest=names.split()[-1].lstrip("-"))
    for name in _SWITCHES.split():
        found.add_argument(name, action="store_true")
    found.add_argument("--set", action="append", default=[])
    given = found.parse_args(args)
    if not Path(given.model).is_dir():
        sys.exit(f"{given.model} is no folder with a model")
    if os.environ.get("TRTLLM_NO_USAGE_STATS") != "1":
        sys.exit("this would be told to the vendor")
    options = json.loads(Path(given.extra_llm_api_options).read_text())
    time.sleep(0.2)
    OpenAIServer(options, given.served_model_name)(given.host, int(given.port))
