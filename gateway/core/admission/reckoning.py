"""What a request will take, and how long one will wait, from those that were: one model at one edge. Pure.

A request that is over costs a few additions; `fade`, now and then, makes the newer ones count more.
"""

from __future__ import annotations

from math import ceil

from gateway.core.request import EMBEDDINGS, Request

TOKENS_A_BYTE = 0.25
"""Of a request's body, until some were counted."""
ANSWER = 256
"""Tokens, until some were counted."""
MOST_PROMPT = 4096
"""Tokens of one with pictures, until some were counted."""
SERVICE_S = 2.0
FADE_FROM = 64
"""Once as many are counted as make half of what is known."""


class Mean:
    """`usual` until something was added."""

    __slots__ = ("count", "total", "usual")

    def __init__(self, usual: float) -> None:
        self.usual = usual
        self.total = self.count = 0.0

    def value(self) -> float:
        return self.total / self.count if self.count else self.usual

    def fade(self) -> None:
        self.total *= 0.5
        self.count *= 0.5


class Reckoning:
    """`known`: enough has ended for an expected wait to be more than a guess."""

    def __init__(self) -> None:
        self._per_byte, self._prompt = Mean(TOKENS_A_BYTE), Mean(MOST_PROMPT)
        self._answer = Mean(ANSWER)
        self._answers: dict[str, Mean] = {}
        """By project."""
        self._seconds = Mean(SERVICE_S)
        self._took = 0.0
        """Tokens in `_seconds`."""
        self.ended = 0

    @property
    def known(self) -> bool:
        return self.ended >= 5

    # -- tokens

    def tokens(self, request: Request, size: int, project: str) -> int:
        """Of the prompt and the answer; `size`: bytes of the body."""
        prompt = size * self._per_byte.value()
        if request.images:
            prompt = min(prompt, self._prompt.value())  # a picture's bytes are no text
        if request.endpoint == EMBEDDINGS:
            return ceil(prompt)
        answer = self._answers.get(project, self._answer).value()
        if request.max_tokens is not None:
            answer = min(answer, max(0, request.max_tokens))
        return ceil(prompt + answer * request.choices)

    def ends(
        self, request: Request, size: int, project: str, prompt: int | None, answer: int | None, held_s: float
    ) -> int | None:
        """A request is over after `held_s` at a replica: learn from it. Returns its tokens, None where nobody knows."""
        if prompt is None:
            if answer is None:
                return None
            prompt = ceil(size * self._per_byte.value())
        elif not request.images:
            self._per_byte.total += prompt
            self._per_byte.count += size
        self._prompt.total += prompt
        self._prompt.count += 1
        if answer is None:
            answer = 0
        elif request.endpoint != EMBEDDINGS:
            self._answer.total += answer
            self._answer.count += request.choices
            own = self._answers.get(project)
            if own is None:
                own = self._answers[project] = Mean(self._answer.usual)
            own.total += answer
            own.count += request.choices
        self._took += prompt + answer
        self._seconds.total += held_s
        self._seconds.count += 1
        self.ended += 1
        return prompt + answer

    def fade(self) -> None:
        """Once a second."""
        if self._seconds.count >= FADE_FROM:
            self._took *= 0.5
            for mean in (self._per_byte, self._prompt, self._answer, self._seconds):
                mean.fade()
            for project, mean in list(self._answers.items()):
                mean.fade()
                if mean.count < 0.01:
                    del self._answers[project]

    # -- time

    def wait_s(self, tokens: float, places: int) -> float:
        """Until a request is let in that has `tokens` before it, with `places` requests worked on at once: they go at
        the speed of the last ones, and the first place is free after a part of one's time."""
        mean_s = self._seconds.value()
        each = self._took / self._seconds.count if self._took else ANSWER
        return (mean_s + tokens * mean_s / each) / max(1, places)
