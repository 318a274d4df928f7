"""What a request will take, and how long one will wait, from those that were: one model at one edge. Pure."""

from __future__ import annotations

from math import ceil

from gateway.core.request import EMBEDDINGS, Request

TOKENS_A_BYTE = 0.25
"""Of a request's body, until some were counted."""
ANSWER = 256
"""Tokens, until some were counted."""
SERVICE_S = 2.0
MOST_PROMPT = 4096
"""Tokens of one with pictures, until some were counted."""
_LEARN = 0.1
_KEEP = 0.98
"""Of the sums behind the speed, each time a request ends: the last fifty count."""
MOST_PROJECTS = 4096


class Mean:
    """Of the last dozen, and of all while there are fewer."""

    __slots__ = ("_count", "value")

    def __init__(self, value: float) -> None:
        self.value = value
        """Until the first is added."""
        self._count = 0

    def add(self, found: float) -> None:
        self._count += 1
        self.value += max(_LEARN, 1 / self._count) * (found - self.value)


class Reckoning:
    """`known`: enough has ended for an expected wait to be more than a guess."""

    def __init__(self) -> None:
        self._per_byte, self._prompt, self._answer = Mean(TOKENS_A_BYTE), Mean(MOST_PROMPT), Mean(ANSWER)
        self._answers: dict[str, Mean] = {}
        """By project."""
        self._tokens = self._seconds = self._count = 0.0
        self.ended = 0

    @property
    def known(self) -> bool:
        return self.ended >= 5

    # -- tokens

    def tokens(self, request: Request, size: int, project: str) -> int:
        """Of the prompt and the answer; `size`: bytes of the body."""
        prompt = size * self._per_byte.value
        if request.images:
            prompt = min(prompt, self._prompt.value)  # a picture's bytes are no text
        if request.endpoint == EMBEDDINGS:
            return ceil(prompt)
        answer = self._answers.get(project, self._answer).value
        if request.max_tokens is not None:
            answer = min(answer, max(0, request.max_tokens))
        return ceil(prompt + answer * request.choices)

    def ends(
        self, request: Request, size: int, project: str, prompt: int | None, answer: int | None, held_s: float
    ) -> int | None:
        """A request is over after `held_s` at a replica: learn from it. Returns its tokens, None where nobody knows."""
        if prompt is None and answer is None:
            return None
        if prompt is None:
            prompt = ceil(size * self._per_byte.value)
        else:
            self._prompt.add(prompt)
            if size and not request.images:
                self._per_byte.add(prompt / size)
        if answer is not None and request.endpoint != EMBEDDINGS:
            self._answer.add(answer / request.choices)
            self._of(project).add(answer / request.choices)
        found = prompt + (answer or 0)
        self._tokens = self._tokens * _KEEP + found
        self._seconds = self._seconds * _KEEP + held_s
        self._count = self._count * _KEEP + 1
        self.ended += 1
        return found

    def _of(self, project: str) -> Mean:
        mean = self._answers.get(project)
        if mean is None:
            if len(self._answers) >= MOST_PROJECTS:
                del self._answers[next(iter(self._answers))]
            mean = self._answers[project] = Mean(self._answer.value)
        return mean

    # -- time

    def wait_s(self, tokens: float, places: int) -> float:
        """Until a request is let in that has `tokens` before it, with `places` requests worked on at once: they go at
        the speed of the last ones, and the first place is free after a part of one's time."""
        places = max(1, places)
        if not self._seconds or not self._tokens:
            return SERVICE_S / places + tokens / (ANSWER / SERVICE_S) / places
        return (self._seconds / self._count + tokens * self._seconds / self._tokens) / places
