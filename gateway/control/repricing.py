"""What rows should have cost by the prices as they are written now, for the ledger's check and for corrections.

Only rows that somebody was charged for are looked at: answers (whole, or as far as the client read them), not those
given again from the answer cache, and not an administrator's replays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from django.db import connection

from gateway.control import parts, rollups
from gateway.control.rollups import Identity
from llmgw.price import Dated, Price, at

_CHARGED = """(cost > 0 OR outcome IN ('ok', 'client_left') AND cache NOT IN ('hit', 'similar')
 AND CAST(tags AS TEXT) NOT LIKE '%%"replay_of"%%') AND prompt_tokens IS NOT NULL"""


@dataclass(frozen=True, slots=True)
class Worth:
    """Rows of one bucket: how many, what they cost by their own account, and by the prices. Nano-units."""

    requests: int
    booked: int
    priced: int


def models() -> dict[str, tuple[Dated, ...]]:
    """Each model's own prices."""
    return {name: entry.prices for name, entry in parts.models().models.items()}


def countable(prices: tuple[Dated, ...]) -> bool:
    """Rows do not say how many pictures or meshes they were, so that such prices cannot be worked out from them."""
    return not any(dated.price.image or dated.price.mesh for dated in prices)


def worth(model: str, prices: tuple[Dated, ...], first: datetime, until: datetime) -> dict[Identity, Worth]:
    """The rows that `model` answered in [first, until), as far as it had a price of its own; by bucket."""
    found: dict[Identity, Worth] = {}
    for begins, ends, price in _stretches(prices, first, until):
        for identity, new in _of_stretch(model, begins, ends, price).items():
            old = found.get(identity, Worth(0, 0, 0))
            found[identity] = Worth(old.requests + new.requests, old.booked + new.booked, old.priced + new.priced)
    return found


def _stretches(
    prices: tuple[Dated, ...], first: datetime, until: datetime
) -> Iterator[tuple[datetime, datetime, Price]]:
    """Where one price holds."""
    since = (datetime.fromtimestamp(dated.since, UTC) for dated in prices)
    for begins, ends in pairwise(sorted({first, until, *(s for s in since if first < s < until)})):
        price = at(prices, begins.timestamp())
        if price is not None:
            yield begins, ends, price


def _of_stretch(model: str, begins: datetime, ends: datetime, price: Price) -> dict[Identity, Worth]:
    least = "LEAST" if connection.vendor == "postgresql" else "MIN"
    cached = f"{least}(COALESCE(cached_tokens, 0), prompt_tokens)"
    rate = price.prompt if price.cached is None else price.cached
    of_prompt = f"(prompt_tokens - {cached}) * CAST(%s AS BIGINT) + {cached} * CAST(%s AS BIGINT)"
    statement = (
        f"SELECT {rollups.bucket_sql(rollups.grain_s())}, organisation, team, project, key, person, %s, COUNT(*), "  # noqa: S608
        f"COALESCE(SUM(cost), 0), SUM({of_prompt} + COALESCE(completion_tokens, 0) * CAST(%s AS BIGINT)) "
        "FROM gateway_usage WHERE at >= %s AND at < %s AND (model = %s AND served = '' OR served = %s) "
        f"AND {_CHARGED} GROUP BY 1, 2, 3, 4, 5, 6"
    )
    when = (rollups.instant(begins), rollups.instant(ends))
    with connection.cursor() as cursor:
        cursor.execute(statement, [model, price.prompt, rate, price.completion, *when, model, model])
        return {rollups.identity_of(row[:7]): Worth(*map(int, row[7:])) for row in cursor.fetchall()}
