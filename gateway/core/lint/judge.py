"""What breaks the prefixes of a number of requests: each fault once, with its worst case and what to do. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gateway.core.lint import varies
from gateway.core.lint.apart import BYTES_A_TOKEN, Parting, parting
from gateway.core.lint.prompt import Piece, Prompt, size

LEAST_TOKENS = 16
"""Less than that is not worth moving anything for: engines keep blocks of about that size."""
_ID = "leave the id out of the prompt, or put it into the last message; `user` and `metadata` carry ids as well"
ADVICE = {
    "timestamp": "tell the time in the last user message, or to the day in place of the second",
    "date": "tell the date in the last user message, or at the end of the system prompt",
    "uuid": _ID,
    "random_id": _ID,
    "white_space": "build the text the same way each time: the same line ends, the same spaces",
    "keys_reordered": "write JSON with its keys in one order each time (sort_keys)",
    "tools_reordered": "send the tools in one order each time: sort them by name",
    "tools_changed": "tools stand before all messages: send the same list each time, and choose by `tool_choice`",
    "changing_ids": "send a message of the past with the ids that it had",
    "image_first": "put the picture behind the text that is the same each time",
    "history_trimmed": "drop old messages seldom and many at once, not one with each request",
    "varying_text": "put what differs (names, a question) behind what is the same each time",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """`times`: how often two consecutive requests of a session parted like this; 0 where it only looks as if they
    would. `lost_tokens` in all of them; the rest is of the costliest: requests `before` and `request`."""

    code: str
    path: str
    times: int
    lost_tokens: int
    before: str
    request: str
    at_byte: int
    at_character: int
    was: str
    now: str
    advice: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """`compared` pairs of requests. `prompt_tokens` of all requests, as `BYTES_A_TOKEN` estimates them."""

    requests: int
    sessions: int
    compared: int
    prompt_tokens: int
    lost_tokens: int
    findings: tuple[Finding, ...]


def judge(prompts: Iterable[Prompt]) -> Judgement:
    """Of requests in the order in which they were sent."""
    last: dict[str, Prompt] = {}
    alone: dict[str, Prompt] = {}
    partings: dict[tuple[str, str], list[tuple[Parting, Prompt, Prompt]]] = {}
    count = compared = total = 0
    for prompt in prompts:
        count += 1
        total += prompt.bytes
        before = last.get(prompt.session)
        last[prompt.session] = prompt
        if before is None:
            alone[prompt.session] = prompt
            continue
        alone.pop(prompt.session, None)
        compared += 1
        found = parting(before, prompt)
        if found is not None and found.lost_tokens >= LEAST_TOKENS:
            partings.setdefault((found.code, found.path), []).append((found, before, prompt))
    findings = [_finding(each) for each in partings.values()]
    known = {finding.code for finding in findings}
    findings += [f for prompt in alone.values() for f in _looks(prompt) if f.code not in known]
    findings = sorted(_once(findings), key=lambda f: (-f.lost_tokens, -f.times, f.code))
    lost = sum(f.lost_tokens for f in findings)
    return Judgement(count, len(last), compared, total // BYTES_A_TOKEN, lost, tuple(findings))


def _finding(each: list[tuple[Parting, Prompt, Prompt]]) -> Finding:
    worst, before, after = max(each, key=lambda one: one[0].lost_bytes)
    return Finding(
        code=worst.code,
        path=worst.path,
        times=len(each),
        lost_tokens=sum(parting.lost_tokens for parting, _, _ in each),
        before=before.name,
        request=after.name,
        at_byte=worst.at_byte,
        at_character=worst.at_character,
        was=worst.was,
        now=worst.now,
        advice=ADVICE[worst.code],
    )


def _looks(prompt: Prompt) -> list[Finding]:
    """Of a request that stands alone: what looks as if it would be another in the next one."""
    found: list[Finding] = []
    at_byte = sum(size(tool.text) for tool in prompt.tools)
    behind = prompt.bytes - at_byte
    for i, piece in enumerate(prompt.pieces):
        behind -= size(piece.text)
        if piece.role in ("system", "developer"):
            for code, at, words in varies.standing(piece.text):
                start = size(piece.text[:at])
                if behind + size(piece.text) - start >= LEAST_TOKENS * BYTES_A_TOKEN:
                    found.append(_look(code, piece, prompt, at_byte + start, at, words))
        elif piece.image and any(p.message == piece.message and not p.image for p in prompt.pieces[i + 1 :]):
            found.append(_look("image_first", piece, prompt, at_byte, 0, ""))
        at_byte += size(piece.text)
    return found


def _look(code: str, piece: Piece, prompt: Prompt, at_byte: int, at: int, words: str) -> Finding:
    return Finding(code, piece.path, 0, 0, "", prompt.name, at_byte, at, "", words[:60], ADVICE[code])


def _once(findings: list[Finding]) -> list[Finding]:
    """What looks the same in many requests is told of the first."""
    seen: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        seen.setdefault((finding.code, finding.path), finding)
    return list(seen.values())
