"""From a conversation to what the network learns: token numbers, and which of them are its own to say."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment

from starter import tokens
from starter.tasks import FORCED, FREE, Conversation

TEMPLATE = Path(__file__).with_name("chat.jinja").read_text()
"""The chat template, the very text that goes into the GGUF."""

_environment = Environment(autoescape=False)
_environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
_template = _environment.from_string(TEMPLATE)


@dataclass(frozen=True, slots=True)
class Example:
    """`learned[i]` tells whether the network is to predict `ids[i]`."""

    ids: list[int]
    learned: list[bool]


def example(conversation: Conversation) -> Example:
    """Answers are learned up to and with their end; questions, tools and forced text are only shown."""
    offered = [tool.offered() for tool in conversation.tools]
    text = _template.render(messages=conversation.messages, tools=offered, add_generation_prompt=False)
    ids, learned = [tokens.BEGIN_ID], [False]
    answering = forced = False
    for token in tokens.encode(text):
        if token in (ord(FORCED), ord(FREE)):
            forced = token == ord(FORCED)
            continue
        ids.append(token)
        learned.append(answering and not forced)
        if token == tokens.ASSISTANT_ID:
            answering = True
        elif token == tokens.END_ID:
            answering = False
    return Example(ids, learned)
