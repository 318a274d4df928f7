"""What can go wrong when somebody asks for a change: a tree that the rim turns into HTTP or an exit status, once."""

from __future__ import annotations

from agent.wire.reason import Reason


class Refusal(Exception):
    """`status` is HTTP's, `exit_code` a command's; the reason says what was wanted, found and to be done."""

    status = 400
    exit_code = 1

    def __init__(self, code: str, sentence: str, command: str = "") -> None:
        super().__init__(sentence)
        self.reason = Reason(code, sentence, command)
        self.problems: tuple[Reason, ...] = (self.reason,)


class Invalid(Refusal):
    """The input does not make sense; `several` names every problem at once."""

    status = 422
    exit_code = 2

    @classmethod
    def several(cls, problems: tuple[Reason, ...]) -> Invalid:
        refusal = cls(problems[0].code, "\n".join(p.sentence for p in problems), problems[0].command)
        refusal.problems = problems
        return refusal


class Forbidden(Refusal):
    status = 403


class NotFound(Refusal):
    status = 404


class Conflict(Refusal):
    """Somebody was first, or the state does not allow it."""

    status = 409
