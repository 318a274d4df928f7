"""A store with rows from before there were months and sums: nothing is lost, there and back again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
STEPS = """
import django; django.setup()
from django.core.management import call_command
from django.db import connection
def to(name): call_command("migrate", "gateway", name, verbosity=0)
def count(table="gateway_usage", what="count(*)"):
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {what} FROM {table}")
        return int(cursor.fetchone()[0])
def insert(first, last):
    with connection.cursor() as cursor:
        for n in range(first, last):
            at = f"2026-{1 + n % 11:02d}-03 10:00:00"
            cursor.execute(
                "INSERT INTO gateway_usage (request_id, at, endpoint, model, asked, stream, organisation, team,"
                " project, key, person, edge, outcome, code, replica, node, route, attempts, prompt_tokens,"
                " estimated)"
                " VALUES (%s, %s, 'chat', 'm', 'm', %s, 'o', 't', 'p', 'k', '', 'e', 'ok', '', '', '', '', 1, 10, %s)",
                [f"req_{n:026d}", at, True, False])
to("0001")
insert(0, 50)
to("0002")
assert (count(), count("gateway_usagehour", "sum(prompt_tokens)")) == (50, 500)
to("0001")
insert(50, 60)
call_command("migrate", verbosity=0)
assert (count(), count("gateway_usagehour", "sum(requests)")) == (60, 60)
call_command("makemigrations", check=True, dry_run=True, verbosity=0)
from datetime import datetime, UTC
from gateway.control import partitions
if partitions.divided():
    assert [p.name for p in partitions.partitions()] == ["gateway_usage_before"]
    assert count("gateway_usage_before") == 60
"""


def test_an_old_table_is_taken_along_there_and_back(tmp_path: Path) -> None:
    environ = {**os.environ, "LLMGW_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    if store := os.environ.get("LLMGW_STORE"):
        import psycopg

        with psycopg.connect(store, autocommit=True) as connection:
            connection.execute("CREATE DATABASE upgraded")
        environ["LLMGW_STORE"] = urlsplit(store)._replace(path="/upgraded").geturl()
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", STEPS]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
