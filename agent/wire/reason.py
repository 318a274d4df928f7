"""Why something is so, in one type that every part of llmgw speaks.

Refusals, rejections of a placement, routes, findings and `why` all carry a `Reason`: a stable code for
programs, one sentence for people, and the command that would change it where there is one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """`code` is snake_case and stable; `sentence` says what was wanted, found and to be done."""

    code: str
    sentence: str
    command: str = ""

    def __str__(self) -> str:
        return self.sentence
