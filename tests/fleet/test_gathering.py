"""Work for the store that comes from many connections at once is done together, and fails by itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from fleet.link.gathering import Gathering

pytestmark = pytest.mark.django_db
"""Nothing here asks the store; the thread that works may hold a connection of an earlier test, and looks after it."""


async def test_what_comes_meanwhile_is_done_together() -> None:
    batches: list[int] = []
    free = threading.Event()

    def work(items: Sequence[int]) -> list[int]:
        free.wait(5)
        batches.append(len(items))
        return [i * 2 for i in items]

    gathering = Gathering(work, most=10)
    asked = [asyncio.create_task(gathering(n)) for n in range(25)]
    await asyncio.sleep(0.05)
    free.set()
    assert await asyncio.gather(*asked) == [n * 2 for n in range(25)]
    assert batches == [10, 10, 5]
    assert await gathering(4) == 8


async def test_one_that_cannot_be_done_fails_alone() -> None:
    def work(items: Sequence[int]) -> list[int]:
        if 3 in items:
            raise ValueError("three")
        return list(items)

    gathering = Gathering(work)
    found = await asyncio.gather(*(gathering(n) for n in range(6)), return_exceptions=True)
    assert [f for f in found if not isinstance(f, Exception)] == [0, 1, 2, 4, 5]
    with pytest.raises(ValueError, match="three"):
        await gathering(3)


async def test_whoever_left_costs_nothing() -> None:
    done: list[int] = []

    def work(items: Sequence[int]) -> list[int]:
        done.extend(items)
        return list(items)

    gathering = Gathering(work)
    leaving = asyncio.create_task(gathering(1))
    staying = asyncio.create_task(gathering(2))
    await asyncio.sleep(0)
    leaving.cancel()
    assert await staying == 2
    assert 2 in done
