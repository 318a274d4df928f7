"""A trace of work on a node: one span for the whole, and one for each step after the other. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from agent.wire.trace import INTERNAL, Attributes, Context, Span


@dataclass(slots=True)
class _Step:
    name: str
    began: float
    ended: float | None = None
    attributes: Attributes = field(default_factory=dict)


class WorkTrace:
    """`parent`: the control plane's span, if there is one. Times are Unix seconds; `new_id` gives random span ids."""

    def __init__(
        self,
        name: str,
        parent: Context | None,
        trace_id: int,
        began: float,
        new_id: Callable[[], int],
        said: Attributes,
    ) -> None:
        self._name, self._parent, self._trace_id, self._began = name, parent, trace_id, began
        self._new_id, self._said = new_id, said
        self._steps: list[_Step] = []

    def step(self, name: str, now: float, **attributes: str | int | float | bool) -> None:
        """The next step begins, and the one before ends."""
        self.end(now)
        self._steps.append(_Step(name, now, attributes=attributes))

    def end(self, now: float, **attributes: str | int | float | bool) -> None:
        """The step that is under way ends."""
        if self._steps and self._steps[-1].ended is None:
            self._steps[-1].ended = now
            self._steps[-1].attributes.update(attributes)

    def spans(self, now: float, error: str = "", **attributes: str | int | float | bool) -> list[Span]:
        """All of them, when the work is over. The step that was under way when it failed bears the error too."""
        open_ = bool(self._steps) and self._steps[-1].ended is None
        self.end(now)
        whole = Context(self._trace_id, self._new_id(), True)
        said = {**self._said, **attributes}
        made = [Span(self._name, whole, self._parent, INTERNAL, _ns(self._began), _ns(now), said, error)]
        for step in self._steps:
            failed = error if open_ and step is self._steps[-1] else ""
            context = Context(self._trace_id, self._new_id(), True)
            ended = step.ended if step.ended is not None else now
            made.append(Span(step.name, context, whole, INTERNAL, _ns(step.began), _ns(ended), step.attributes, failed))
        return made


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
