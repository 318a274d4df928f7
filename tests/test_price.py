"""Money is whole numbers: what an answer costs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmgw.price import NANO, Dated, Price, at

counts = st.integers(0, 10_000_000)


def test_prices_per_thousand_tokens_are_nano_units_per_token() -> None:
    price = Price(prompt=2500, cached=250, completion=10000, image=40000)
    assert price.of(prompt=1000, completion=0) == 2500 * 1000, "2500 micro-units"
    assert price.of(1000, 500, cached=400) == 600 * 2500 + 400 * 250 + 500 * 10000
    assert price.of(0, 0, images=1) == 40000 * 1000
    assert Price(completion=1_000_000).of(0, 1000) == NANO, "1.00 per 1k completion"


@given(counts, counts, counts)
def test_a_cache_never_makes_it_dearer_than_the_cached_price_says(prompt: int, completion: int, cached: int) -> None:
    price = Price(7, 11, cached=3)
    assert price.of(prompt, completion, cached) == price.of(prompt, completion) - min(prompt, cached) * 4
    assert Price(7, 11).of(prompt, completion, cached) == Price(7, 11).of(prompt, completion)


def test_a_price_holds_from_its_date_until_the_next_one() -> None:
    prices = (Dated(Price(prompt=2), since=200), Dated(Price(prompt=1), since=100))
    assert [at(prices, now) and at(prices, now).prompt for now in (99, 100, 199, 200, 300)] == [None, 1, 1, 2, 2]  # type: ignore[union-attr]
