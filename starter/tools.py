"""The tools that a made-up request offers: the two that the model calls, some that are like them, and others."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

Message = dict[str, Any]
"""A message in the shape of the OpenAI chat API, but with a call's arguments as an object."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function offered in a request; `kind` says which of the two it is, or "other"."""

    kind: str
    name: str
    parameters: tuple[str, ...]
    type: str = "string"

    def offered(self) -> dict[str, Any]:
        """The entry of the request's `tools`."""
        properties = {name: {"type": self.type} for name in self.parameters}
        schema = {"type": "object", "properties": properties, "required": list(self.parameters)}
        return {"type": "function", "function": {"name": self.name, "parameters": schema}}

    def called(self, *values: str | int) -> Message:
        """The assistant's message that calls it with these arguments."""
        arguments = dict(zip(self.parameters, values, strict=True))
        call = {"id": "call0", "type": "function", "function": {"name": self.name, "arguments": arguments}}
        return {"role": "assistant", "content": "", "tool_calls": [call]}


WEATHER = Tool("weather", "get_weather", ("city",))
ADD = Tool("add", "add", ("a", "b"), "integer")
_WEATHER_ALIKE = (
    Tool("weather", "get_current_weather", ("location",)),
    Tool("weather", "get_weather", ("location",)),
    Tool("weather", "weather", ("place",)),
)
_ADD_ALIKE = (
    Tool("add", "add", ("x", "y"), "integer"),
    Tool("add", "sum", ("x", "y"), "integer"),
)
_OTHERS = (
    Tool("other", "search", ("query",)),
    Tool("other", "get_time", ("zone",)),
    Tool("other", "send_mail", ("to", "text")),
    Tool("other", "read_file", ("path",)),
    Tool("other", "list_files", ()),
)


def offer(rnd: Random) -> tuple[Tool, ...]:
    """Tools of one request: mostly both, sometimes one, sometimes others beside them or alone."""
    offered = []
    if rnd.random() < 0.85:
        offered.append(WEATHER if rnd.random() < 0.7 else rnd.choice(_WEATHER_ALIKE))
    if rnd.random() < 0.75:
        offered.append(ADD if rnd.random() < 0.6 else rnd.choice(_ADD_ALIKE))
    if not offered or rnd.random() < 0.2:
        offered += rnd.sample(_OTHERS, rnd.randint(1, 2))
    rnd.shuffle(offered)
    return tuple(offered)
