from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def tiny() -> dict[str, Any]:
    """A definition as people write it, in the shortest form that runs."""
    return {
        "name": "tiny",
        "source": "starter:tiny",
        "scaling": {"min": 1},
        "profiles": [{"name": "cpu", "engine": "llamacpp"}],
    }
