"""The three machines are booted once for all tests of this folder, each of which leaves them as it found them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nodes import machines
from tests.nodes.house import House


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    if (why := machines.missing()) is not None:
        pytest.skip(why)
    one = House(tmp_path_factory.mktemp("machines"))
    try:
        one.open()
        yield one
    finally:
        one.close()
