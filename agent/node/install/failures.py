"""Why an installation did not come about."""

from __future__ import annotations

from agent.wire.reason import Reason


class Failed(Exception):
    """`passed`: this build cannot run on this machine, and another may; else it is worth another try later, not
    before `wait_s` where somebody said so."""

    def __init__(
        self, code: str, sentence: str, command: str = "", *, passed: bool = False, wait_s: float | None = None
    ) -> None:
        super().__init__(sentence)
        self.reason = Reason(code, sentence, command)
        self.passed = passed
        self.wait_s = wait_s
