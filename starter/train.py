"""Train the tiny model and write its GGUF.

    python -m starter.train OUT.gguf [--steps 3500] [--threads 1] [--seed 1] [--from WEIGHTS.pt]

Beside OUT.gguf it keeps OUT.pt, from which `--from` goes on. At the end it prints the file's SHA-256, which belongs
into `agent/starter/__init__.py`.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import time
from pathlib import Path
from random import Random

import torch
from torch import Tensor
from torch.nn import functional

from starter import copying, tokens, weights
from starter.network import Tiny
from starter.prompt import Example, example
from starter.tasks import conversation

BATCH = 16
CHUNK_TOKENS = 2048
"""Conversations of about one length go through the network together, at most so many tokens with their padding."""
LONGEST = 1800
WARM_STEPS = 50


def drills(step: int, steps: int) -> float:
    """The share of copying drills in a batch: half at first, next to none from a tenth of the way on."""
    return max(0.02, 0.5 * (1 - step / (0.1 * steps)))


def rate(step: int, steps: int, peak: float) -> float:
    """The learning rate: up in a straight line, then down along a cosine."""
    return peak * min(1.0, (step + 1) / WARM_STEPS) * (0.01 + 0.99 * (1 + math.cos(math.pi * step / steps)) / 2)


def batch(rnd: Random, drill_share: float) -> list[list[Example]]:
    """One step's examples, shortest first, in chunks."""
    examples = []
    while len(examples) < BATCH:
        one = example(conversation(rnd, drills=drill_share))
        if len(one.ids) <= LONGEST:
            examples.append(one)
    examples.sort(key=lambda one: len(one.ids))
    chunks: list[list[Example]] = [[]]
    for one in examples:
        if chunks[-1] and len(one.ids) * (len(chunks[-1]) + 1) > CHUNK_TOKENS:
            chunks.append([])
        chunks[-1].append(one)
    return chunks


def weight(one: Example) -> float:
    """What each learned token of a conversation counts for: a one-digit sum must not drown in long recitals."""
    return float(sum(one.learned) ** -0.5)


def loss_sum(tiny: Tiny, chunk: list[Example]) -> Tensor:
    """Summed, weighted cross entropy over what is learned in these examples."""
    longest = max(len(one.ids) for one in chunk)
    ids = torch.tensor([one.ids + [tokens.PAD_ID] * (longest - len(one.ids)) for one in chunk])
    learned = torch.tensor([one.learned + [False] * (longest - len(one.ids)) for one in chunk])[:, 1:]
    weights = torch.tensor([weight(one) for one in chunk])[:, None].expand(learned.shape)[learned]
    with torch.autocast("cpu", torch.bfloat16):
        hidden = tiny(ids[:, :-1])[learned]
    losses = functional.cross_entropy(tiny.logits(hidden.float()), ids[:, 1:][learned], reduction="none")
    return (losses * weights).sum()


def train(tiny: Tiny, *, steps: int, peak: float, seed: int, drilled: bool, out: Path) -> None:
    """Run all steps, telling the loss and writing the weights so far now and then."""
    rnd = Random(seed)
    optimiser = torch.optim.AdamW(tiny.parameters(), lr=peak, betas=(0.9, 0.98), weight_decay=0.01)
    started, recent = time.monotonic(), 0.0
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = rate(step, steps, peak)
        chunks = batch(rnd, drills(step, steps) if drilled else 0.02)
        total = sum(weight(one) * sum(one.learned) for chunk in chunks for one in chunk)
        optimiser.zero_grad(set_to_none=True)
        for chunk in chunks:
            loss = loss_sum(tiny, chunk) / total
            loss.backward()
            recent += loss.item()
        torch.nn.utils.clip_grad_norm_(tiny.parameters(), 1.0)
        optimiser.step()
        if (step + 1) % 100 == 0:
            print(
                f"step {step + 1} of {steps}, {time.monotonic() - started:.0f} s, loss {recent / 100:.4f}", flush=True
            )
            recent = 0.0
        if (step + 1) % 200 == 0:
            keep(tiny, out)


def keep(tiny: Tiny, out: Path) -> None:
    """Write the weights so far, as GGUF and as .pt."""
    torch.save(tiny.state_dict(), out.with_suffix(".pt"))
    weights.write(tiny, out)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the tiny model and write its GGUF.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=3500)
    parser.add_argument("--rate", type=float, default=3e-3, help="peak learning rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--from", dest="start", type=Path, help="go on from these weights (.pt)")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    torch.manual_seed(asked.seed)
    tiny = Tiny()
    copying.lay_in(tiny)
    if asked.start:
        tiny.load_state_dict(torch.load(asked.start, weights_only=True))
    train(tiny, steps=asked.steps, peak=asked.rate, seed=asked.seed, drilled=asked.start is None, out=asked.out)
    keep(tiny, asked.out)
    print(f"{asked.out}: {asked.out.stat().st_size} bytes, sha256 {hashlib.sha256(asked.out.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
