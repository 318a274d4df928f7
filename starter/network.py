"""The network: a llama as small as it can be, written out so that its parts carry the names of the GGUF."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from starter import tokens

WIDTH, LAYERS, HEADS, INNER = 128, 3, 4, 256
HEAD_WIDTH = WIDTH // HEADS
CONTEXT = 2048
ROPE_BASE = 10000.0
EPSILON = 1e-5
SPREAD = 0.04
"""Standard deviation of fresh weights."""


def rotation(length: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary positions, (length, HEAD_WIDTH): each stands for both halves of its pair."""
    rates = ROPE_BASE ** (-torch.arange(0, HEAD_WIDTH, 2, dtype=torch.float32) / HEAD_WIDTH)
    angles = torch.outer(torch.arange(length, dtype=torch.float32), rates.repeat_interleave(2))
    return angles.cos(), angles.sin()


def quarter_turn() -> Tensor:
    """The matrix that turns every pair (a, b) into (-b, a): on CPUs a product is faster than slicing and stacking."""
    turn = torch.zeros(HEAD_WIDTH, HEAD_WIDTH)
    for i in range(0, HEAD_WIDTH, 2):
        turn[i + 1, i], turn[i, i + 1] = -1.0, 1.0
    return turn


def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention in plain steps: on CPUs the backward pass of torch's fused one takes half of all the time."""
    batch, heads, length, width = q.shape
    later = torch.full((length, length), float("-inf"), dtype=q.dtype).triu(1)
    q, k, v = (part.reshape(batch * heads, length, width) for part in (q, k, v))
    scores = torch.baddbmm(later, q, k.transpose(1, 2), alpha=width**-0.5)
    return torch.bmm(scores.softmax(-1), v).view(batch, heads, length, width)


class Block(nn.Module):
    """Attention and a gated feed-forward, each behind its norm. Neighbouring pairs are turned by position, which is
    llama.cpp's own order, so that weights need no permutation."""

    def __init__(self) -> None:
        super().__init__()
        self.attn_norm = nn.RMSNorm(WIDTH, eps=EPSILON)
        self.attn_qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.attn_output = nn.Linear(WIDTH, WIDTH, bias=False)
        self.ffn_norm = nn.RMSNorm(WIDTH, eps=EPSILON)
        self.ffn_gate_up = nn.Linear(WIDTH, 2 * INNER, bias=False)
        self.ffn_down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, turn: Tensor) -> Tensor:
        qkv = self.attn_qkv(self.attn_norm(x)).unflatten(-1, (3 * HEADS, HEAD_WIDTH)).transpose(1, 2)
        qk, v = qkv[:, : 2 * HEADS], qkv[:, 2 * HEADS :]
        qk = qk * cos + (qk @ turn) * sin
        mixed = attended(qk[:, :HEADS], qk[:, HEADS:], v)
        x = x + self.attn_output(mixed.transpose(1, 2).flatten(-2))
        gate, up = self.ffn_gate_up(self.ffn_norm(x)).chunk(2, dim=-1)
        return x + self.ffn_down(functional.silu(gate) * up)

    def tensors(self) -> dict[str, Tensor]:
        """Weights under llama.cpp's names; what is joined here for speed is parted again."""
        q, k, v = self.attn_qkv.weight.chunk(3)
        gate, up = self.ffn_gate_up.weight.chunk(2)
        return {
            "attn_norm": self.attn_norm.weight,
            "attn_q": q,
            "attn_k": k,
            "attn_v": v,
            "attn_output": self.attn_output.weight,
            "ffn_norm": self.ffn_norm.weight,
            "ffn_gate": gate,
            "ffn_up": up,
            "ffn_down": self.ffn_down.weight,
        }


class Tiny(nn.Module):
    """Token numbers (batch, length) to hidden states (batch, length, WIDTH); `logits` reads tokens off them."""

    def __init__(self) -> None:
        super().__init__()
        self.token_embd = nn.Embedding(tokens.SIZE, WIDTH)
        self.blk = nn.ModuleList(Block() for _ in range(LAYERS))
        self.output_norm = nn.RMSNorm(WIDTH, eps=EPSILON)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                deeper = name.endswith(("attn_output.weight", "ffn_down.weight"))
                nn.init.normal_(weight, std=SPREAD / (2 * LAYERS) ** 0.5 if deeper else SPREAD)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token_embd(ids)
        cos, sin = rotation(ids.shape[1])
        precision = torch.bfloat16 if torch.is_autocast_enabled("cpu") else x.dtype
        cos, sin, turn = cos.to(precision), sin.to(precision), quarter_turn().to(precision)
        for block in self.blk:
            x = block(x, cos, sin, turn)
        return self.output_norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """The embedding read backwards: input and output share it."""
        return functional.linear(hidden, self.token_embd.weight)

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor of the GGUF by its name there."""
        named = {
            f"blk.{i}.{name}": weight for i, block in enumerate(self.blk) for name, weight in block.tensors().items()
        }
        named |= {"token_embd": self.token_embd.weight, "output_norm": self.output_norm.weight}
        return {f"{name}.weight": weight for name, weight in named.items()}
