"""The most that one request can use: tokens, and money at a price. Pure.

The prompt is estimated from its text (`Request.prompt_tokens`) and by what the model's tokenizer made of earlier ones;
what is generated is bounded by what the client named, the model's output, its context, and where nobody says, by
`unnamed_tokens`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from gateway.core.request import EMBEDDINGS, Request
from gateway.core.snapshot import ModelEntry
from llmgw.price import Price

NO_CONTEXT_TOKENS = 131_072
"""The context of a model of which nobody knows it."""


@dataclass(frozen=True, slots=True)
class Worst:
    tokens: int
    money: int
    """Nano-units."""
    each: int
    """Tokens that each of its answers may have."""
    named: bool
    """The client itself asks for no more than `each`: the engine need not be told."""


NOTHING_USED = Worst(0, 0, 0, True)
"""An answer that is given again."""


def worst(request: Request, entry: ModelEntry, price: Price, unnamed_tokens: int, factor: float = 1.0) -> Worst:
    """`factor`: tokens of a prompt to its estimate, as this model's last ones were."""
    context = entry.context_length or NO_CONTEXT_TOKENS
    prompt = min(ceil(request.prompt_tokens * factor), context)
    if request.endpoint == EMBEDDINGS:
        return Worst(prompt, price.of(prompt, 0), 0, True)
    most = min(entry.max_output or context, context)
    asked = request.max_tokens
    each = min(most, asked if asked is not None else unnamed_tokens)
    generated = each * max(1, request.choices)
    tokens = min(prompt + generated, context * max(1, request.choices))
    return Worst(tokens, price.of(prompt, generated), each, asked is not None and asked <= each)


class Estimates:
    """How far the estimates of prompts are off, model by model: a rise counts at once, a fall slowly."""

    def __init__(self) -> None:
        self._factors: dict[str, float] = {}

    def factor(self, model: str) -> float:
        return self._factors.get(model, 1.0)

    def learn(self, model: str, estimated: int, prompt: int) -> None:
        """Small prompts tell little: what a template adds is most of them."""
        if estimated < 32:
            return
        found = min(max(prompt / estimated, 1.0), 16.0)
        before = self._factors.get(model, 1.0)
        self._factors[model] = found if found > before else before + (found - before) * 0.02
