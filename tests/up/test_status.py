"""The line at the bottom of `up`: a store that is away must not end everything else."""

from __future__ import annotations

import pytest
from django.db import connection

from llmgw.up import status


@pytest.mark.django_db
def test_the_line_counts_what_runs() -> None:
    assert status.line().startswith("0 of 0 replicas ready · 0 nodes")


@pytest.mark.django_db
def test_a_store_that_fails_is_told_in_the_line() -> None:
    with connection.cursor() as cursor:  # the test's own transaction takes the table back
        cursor.execute("ALTER TABLE fleet_replica RENAME TO fleet_replica_away")
    told = status.line()
    assert "the store" in told
    assert "fleet_replica" in told
