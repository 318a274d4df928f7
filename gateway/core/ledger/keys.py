"""Where the ledger lies in Redis. The scripts (`gateway/edge/ledger/*.lua`) and the control side agree on it here.

| key | type | what |
|---|---|---|
| `llmgw:ledger:a:LEVEL:ID` | hash | requests and tokens in the last minute, held tokens, requests at once |
| `llmgw:ledger:w:LEVEL:ID` | list | the same minute's older tenths of a second, `tenth:requests:tokens` |
| `llmgw:ledger:m:LEVEL:ID:PERIOD` | hash | money in nano-units: `s` spent, `h` held, `k` seeded (Unix seconds) |
| `llmgw:ledger:u:LEVEL:ID:PERIOD` | set | request ids that were settled before it was seeded |
| `llmgw:ledger:e:EDGE` | hash | reservations of an edge by request id; `#number`, `#epoch` |
| `llmgw:ledger:edges` | sorted set | edges by when they last spoke (milliseconds) |
"""

from __future__ import annotations

ROOT = "llmgw:ledger:"
EDGES = f"{ROOT}edges"
WINDOW_S = 60.0
"""What a minute is."""
LEASE_S = 10.0
"""An edge that has not spoken for so long is dead, and what it held is given back."""


def account(name: str) -> str:
    return f"{ROOT}a:{name}"


def window(name: str) -> str:
    return f"{ROOT}w:{name}"


def purse(name: str, period: str) -> str:
    return f"{ROOT}m:{name}:{period}"


def unseeded(name: str, period: str) -> str:
    return f"{ROOT}u:{name}:{period}"


def edge(edge_id: str) -> str:
    return f"{ROOT}e:{edge_id}"
