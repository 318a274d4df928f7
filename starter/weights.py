"""The network as a GGUF file that llama.cpp serves: tokeniser, template and half-precision tensors."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from starter import network, tokens
from starter.prompt import TEMPLATE


def write(tiny: network.Tiny, path: Path) -> None:
    """Write `path` anew; the same weights give the same bytes."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_license("apache-2.0")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_context_length(network.CONTEXT)
    writer.add_embedding_length(network.WIDTH)
    writer.add_block_count(network.LAYERS)
    writer.add_feed_forward_length(network.INNER)
    writer.add_head_count(network.HEADS)
    writer.add_head_count_kv(network.HEADS)
    writer.add_layer_norm_rms_eps(network.EPSILON)
    writer.add_rope_dimension_count(network.HEAD_WIDTH)
    writer.add_rope_freq_base(network.ROPE_BASE)
    _add_tokeniser(writer)
    for name, weight in tiny.tensors().items():
        # llama.cpp wants norms in full precision.
        precision = np.float32 if weight.dim() == 1 else np.float16
        writer.add_tensor(name, weight.detach().numpy().astype(precision))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokeniser(writer: gguf.GGUFWriter) -> None:
    spelled = tokens.spelled()
    kinds = [gguf.TokenType.NORMAL] * len(spelled)
    for i, token in enumerate(spelled):
        if token in tokens.CONTROL:
            kinds[i] = gguf.TokenType.CONTROL
        elif token in tokens.VISIBLE:
            kinds[i] = gguf.TokenType.USER_DEFINED
        elif token.startswith("<|unused"):
            kinds[i] = gguf.TokenType.UNUSED
    writer.add_vocab_size(len(spelled))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(spelled)
    writer.add_token_types(kinds)
    writer.add_token_merges(tokens.merges())
    writer.add_bos_token_id(tokens.BEGIN_ID)
    writer.add_eos_token_id(tokens.END_ID)
    writer.add_eot_token_id(tokens.END_ID)
    writer.add_pad_token_id(tokens.PAD_ID)
    writer.add_add_bos_token(True)
    writer.add_chat_template(TEMPLATE)
