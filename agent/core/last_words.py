"""Why an engine ended, in one sentence, from its exit and the end of its log. Pure.

The decisive line of a log is often followed by many lines of shutdown noise; the patterns below pick it.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from agent.wire.shard import CACHE_MEMORY, CARD_HELD, GPU_MEMORY

FAREWELL = "llmgw-launcher: "
"""Begins the one line with which our own launchers say why they end."""

KEPT = 20
"""Lines that are told to the control plane at an engine's death."""
_LONGEST = 400
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: one of the two is known, or neither (it was not our child)."""

    status: int | None = None
    signal: int | None = None


_CARD = (
    # What ends for want of a card's memory, and whether the card or the room for the cache is what is too small.
    (re.compile(r"No available memory for the cache blocks.*"), CACHE_MEMORY),
    (re.compile(r"Free memory on device .*less than desired.*"), CARD_HELD),
    (re.compile(r"CUDA out of memory.*|cudaMalloc failed: out of memory.*|.*hipErrorOutOfMemory.*"), GPU_MEMORY),
)
_MEANS = {
    CACHE_MEMORY: "too little memory is left for the KV cache",
    CARD_HELD: "the card's memory is held by another process",
    GPU_MEMORY: "out of GPU memory",
}
_TOLD = (
    # pattern of the decisive line → what it means; {0} is the line itself. First match of the first pattern wins.
    *((pattern, f"{_MEANS[cause]}: {{0}}") for pattern, cause in _CARD),
    (re.compile(re.escape(FAREWELL) + r"(.*)"), "{1}"),
    (re.compile(r"std::bad_alloc.*|.*Cannot allocate memory.*|^MemoryError.*"), "out of the machine's memory: {0}"),
    (
        re.compile(r"couldn't bind HTTP server socket.*|.*[Aa]ddress already in use.*"),
        "its port is taken by another process: {0}",
    ),
    (re.compile(r"error loading model: (.*)"), "the model cannot be loaded: {1}"),
    (re.compile(r"error: (?:unknown|invalid) argument.*"), "{0}"),
    (re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): .*"), "{0}"),
)


def cleaned(raw: bytes, secrets: Sequence[str] = (), lines: int = KEPT) -> tuple[str, ...]:
    """The last `lines` lines of a log's end, without control characters and without any of `secrets`."""
    text = raw.decode("utf-8", errors="replace")
    for secret in secrets:
        if secret:
            text = text.replace(secret, "•••")
    found = [_ANSI.sub("", line).rstrip()[:_LONGEST] for line in text.replace("\r\n", "\n").split("\n")]
    return tuple([line for line in found if line][-lines:]) if lines > 0 else ()


def sentence(title: str, exit_: Exit, lines: Sequence[str], *, while_: str = "") -> str:
    """`llama.cpp ended with status 1 while loading: the model cannot be loaded: …`"""
    cause = _cause(exit_, lines)
    return f"{title} {_ending(exit_)}{f' while {while_}' if while_ else ''}{f': {cause}' if cause else ''}"


def card_cause(lines: Sequence[str]) -> str | None:
    """What of a card's memory was wanting, where that is why: see `agent.wire.shard`."""
    return next((cause for pattern, cause in _CARD for line in lines if pattern.search(line)), None)


def _ending(exit_: Exit) -> str:
    if exit_.signal is not None:
        try:
            name = signal.Signals(exit_.signal).name
        except ValueError:
            name = str(exit_.signal)
        return f"was ended by {name}"
    if exit_.status is not None:
        return f"ended with status {exit_.status}"
    return "ended (how is not known: another agent had started it)"


def _cause(exit_: Exit, lines: Sequence[str]) -> str:
    for pattern, meaning in _TOLD:
        for line in lines:
            match = pattern.search(line)
            if match is not None:
                return meaning.format(match.group(0), *match.groups()).strip()
    if exit_.signal == signal.SIGKILL or exit_.status == 137:
        return "somebody killed it, or the kernel did for want of memory (dmesg tells)"
    # Whoever ends by its own will with a status says why last; whoever was ended from outside did not know it.
    return lines[-1].strip() if lines and exit_.status else ""
