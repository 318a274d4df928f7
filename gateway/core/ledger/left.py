"""What is left, for the headers of an answer: OpenAI's for requests and tokens, ours for money. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from llmgw.money import written

Headers = list[tuple[bytes, bytes]]
_RESET = b"1m0s"
"""A minute after this request all is as it was before: the window slides."""


def headers(result: Sequence[int]) -> Headers:
    """`result` as the script gives it: which, then for requests, tokens and money what is left, and of how much."""
    _, requests, of_requests, tokens, of_tokens, money, of_money = result[:7]
    found: Headers = []
    if of_requests >= 0:
        found += [
            (b"x-ratelimit-limit-requests", b"%d" % of_requests),
            (b"x-ratelimit-remaining-requests", b"%d" % requests),
            (b"x-ratelimit-reset-requests", _RESET),
        ]
    if of_tokens >= 0:
        found += [
            (b"x-ratelimit-limit-tokens", b"%d" % of_tokens),
            (b"x-ratelimit-remaining-tokens", b"%d" % tokens),
            (b"x-ratelimit-reset-tokens", _RESET),
        ]
    if of_money >= 0:
        found += [
            (b"x-llmgw-budget-limit", written(of_money).encode()),
            (b"x-llmgw-budget-remaining", written(money).encode()),
        ]
    return found
