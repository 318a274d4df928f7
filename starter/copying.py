"""A head start: fresh weights that already know how to copy.

Copying ("after this letter came that one, so it comes again") takes two heads that work together, and a network this
small needs most of its training to find them. So they are laid in by hand, and training goes on from there:

- in the first layer, one head looks one token back and one two tokens back, and each notes what is there;
- in the second, one head looks for places whose noted token is the present one, and says what stands there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from starter.network import HEAD_WIDTH, ROPE_BASE, SPREAD, WIDTH, Tiny

CONSTANT = 4.0
"""The first number of each embedding, in SPREADs: the same for all tokens, so that a head can ignore what it reads."""
SHARPNESS = 2.5
NOTE = 0.1
MATCH = 2.5
SAY = 1.0
_FAST_PAIRS = 6
"""Pairs that turn fast enough to tell neighbouring places apart."""
_NUMBERS = 20
"""A head's last so many numbers turn so slowly that it can compare tokens far from one another by them."""


@torch.no_grad()
def lay_in(tiny: Tiny) -> None:
    """Change fresh weights in place."""
    tiny.token_embd.weight[:, 0] = CONSTANT * SPREAD
    reads, notes, further, says = _orthonormal(4 * _NUMBERS).chunk(4)
    _look_back(tiny, 0, 1, reads, notes)
    _look_back(tiny, 1, 2, reads, further)
    _find_and_say(tiny, reads, notes, says)


def _look_back(tiny: Tiny, head: int, back: int, reads: Tensor, notes: Tensor) -> None:
    """Make a head of the first layer look so many tokens back, read what is there and note it."""
    q, k, v, output = _head(tiny, 0, head)
    for pair in range(_FAST_PAIRS):
        angle = torch.tensor(back * ROPE_BASE ** (-2 * pair / HEAD_WIDTH))
        q[2 * pair, 0] = SHARPNESS
        k[2 * pair, 0], k[2 * pair + 1, 0] = SHARPNESS * angle.cos(), SHARPNESS * angle.sin()
    v[:_NUMBERS], output[:, :_NUMBERS] = reads, NOTE * notes.T


def _find_and_say(tiny: Tiny, reads: Tensor, notes: Tensor, says: Tensor) -> None:
    """Make the first head of the second layer find the present token's notes and say what stands beside them."""
    q, k, v, output = _head(tiny, 1, 0)
    q[-_NUMBERS:], k[-_NUMBERS:] = MATCH * reads, MATCH * notes
    v[:_NUMBERS], output[:, :_NUMBERS] = says, SAY * says.T


def _head(tiny: Tiny, layer: int, head: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Views of one head's query, key, value and output weights."""
    block = tiny.blk[layer]
    numbers = slice(head * HEAD_WIDTH, (head + 1) * HEAD_WIDTH)
    q, k, v = (part[numbers] for part in block.attn_qkv.weight.chunk(3))
    return q, k, v, block.attn_output.weight[:, numbers]


def _orthonormal(rows: int) -> Tensor:
    """Rows at right angles to one another that do not read the constant."""
    directions = torch.linalg.qr(torch.randn(WIDTH - 1, rows)).Q.T
    return torch.cat((torch.zeros(rows, 1), directions), dim=1)
