"""A store of its own for one measurement, gone afterwards."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

Kind = Literal["sqlite", "postgresql"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@contextmanager
def throwaway(kind: Kind) -> Iterator[None]:
    """Django is set up on it, with all its tables. Once in a process."""
    with tempfile.TemporaryDirectory(prefix="llmgw-bench-") as home:
        os.environ["LLMGW_HOME"] = home
        os.environ.pop("LLMGW_STORE", None)
        if kind == "postgresql":
            from tests.services.postgres import start

            os.environ["LLMGW_STORE"] = start()
        os.environ["DJANGO_SETTINGS_MODULE"] = "llmgw.settings"
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        yield
