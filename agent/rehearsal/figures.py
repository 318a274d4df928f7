"""What a pretended engine takes for a start, a prompt and a token: figures of cards, and the arithmetic on them. Pure.

The figures of a card are its maker's data sheet (memory bandwidth, dense 16-bit arithmetic); what an engine gets of
them is a share that is usual for vLLM on dense models: half of the arithmetic while it reads a prompt, 0.6 of the
bandwidth while it writes. A step writes one token of every request in the batch and reads all the weights once, so it
takes as long as the weights need, and a little more for each request beside it. They give the shape and the order of
magnitude; what was measured on real machines (`bench MODEL --save`) is better where it is there.
"""

from __future__ import annotations

from dataclasses import dataclass

GB = 10**9
_READING, _WRITING = 0.5, 0.6
"""Shares of the arithmetic while reading a prompt, of the bandwidth while writing."""
_STEP_S = 0.002
"""Of every step, whatever the model: launches, sampling, the way to the client."""
_BESIDE = 0.012
"""By so much of a step's time each further request of the batch lengthens it: its KV cache is read too."""
_LINKED, _UNLINKED = 0.9, 0.6
"""What tensor parallelism keeps of each further card, with and without NVLink."""


@dataclass(frozen=True, slots=True)
class Card:
    """One card: bytes a second of its memory, floating-point operations a second, bytes a second at which weights
    come in from a local disk, and whether NVLink joins it with the others."""

    bandwidth: float
    flops: float
    load: float = 2.0 * GB
    linked: bool = False


CARDS = {
    "h200": Card(4800 * GB, 989e12, 4.0 * GB, linked=True),
    "h100": Card(3350 * GB, 989e12, 4.0 * GB, linked=True),
    "a100": Card(2039 * GB, 312e12, 3.0 * GB, linked=True),
    "l40s": Card(864 * GB, 362e12, 2.0 * GB),
    "l4": Card(300 * GB, 121e12, 1.5 * GB),
    "rtx4090": Card(1008 * GB, 165e12, 2.0 * GB),
}
"""By the first word of a class (`h200-140g`). Sources: NVIDIA's data sheets of each card, SXM where there is one."""
CPU = Card(200 * GB, 3e12, 1.0 * GB)
"""A server with eight channels of DDR5, for what runs without a card."""
_PLAIN = Card(500 * GB, 100e12)


@dataclass(frozen=True, slots=True)
class Weights:
    """What of a model decides its speed: bytes of weights, parameters that work on each token."""

    size_bytes: int
    parameters: float


@dataclass(frozen=True, slots=True)
class Speed:
    """One engine's: seconds to load, to read a token of a prompt, and for a step of a batch of one."""

    load_s: float
    prompt_token_s: float
    step_s: float

    def step(self, batch: int) -> float:
        """Seconds between two tokens of each of `batch` requests that are written at once."""
        return self.step_s * (1 + _BESIDE * max(0, batch - 1))

    def answer_s(self, prompt: int, answer: int, batch: int = 1) -> float:
        return prompt * self.prompt_token_s + answer * self.step(batch)


def card(gpu_class: str | None) -> Card:
    """Of a card's class; of the machine's processors where there is none."""
    if not gpu_class:
        return CPU
    whole = CARDS.get(gpu_class.split("-", 1)[0], _PLAIN)
    share = _instance_share(gpu_class)
    if share == 1:
        return whole
    return Card(whole.bandwidth * share, whole.flops * share, whole.load)


def speed(weights: Weights, gpu_class: str | None, cards: int) -> Speed:
    """Of a model on `cards` cards of a class (0: on processors)."""
    one = card(gpu_class if cards else None)
    keeps = _LINKED if one.linked else _UNLINKED
    ways = 1 + keeps * (max(1, cards) - 1)
    return Speed(
        load_s=2.0 + weights.size_bytes / one.load,
        prompt_token_s=2 * weights.parameters / (one.flops * ways * _READING),
        step_s=_STEP_S + weights.size_bytes / (one.bandwidth * ways * _WRITING),
    )


def _instance_share(gpu_class: str) -> float:
    """Of `h200-140g-mig-3g.71gb`: three of seven slices."""
    _, found, profile = gpu_class.partition("-mig-")
    slices = profile.split("g.", 1)[0]
    return int(slices) / 7 if found and slices.isdigit() else 1.0
