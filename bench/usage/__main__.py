"""`python -m bench.usage --rows 1,3 --store postgresql`: millions of rows in a store of its own, and each query's time.

The store is thrown away at the end. Times are the middle of three, the first look at the data not counted.
"""

from __future__ import annotations

import argparse
import statistics
import time
from itertools import islice
from pathlib import Path

from bench.store import KINDS, throwaway


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.usage")
    parser.add_argument("--rows", default="1,3", help="millions, rising: 1,3,10")
    parser.add_argument("--store", choices=KINDS, default="postgresql")
    parser.add_argument("--explain", action="store_true", help="print the plan of each query of rows, at the end")
    given = parser.parse_args()
    with throwaway(given.store):
        run([float(n) for n in given.rows.split(",")], given.explain)


def run(millions: list[float], explain: bool) -> None:
    from django.db import connection

    from bench.usage import queries, rows
    from gateway.control import partitions, retention

    now = rows.end()
    months = [partitions.later(partitions.month_of(now), -n) for n in range(8)]
    partitions.ensure(now, months, retention.oldest(now))
    table: dict[str, list[str]] = {}
    heads, kept = [], 0
    for n, million in enumerate(millions):
        count = int(million * 1e6)
        began = time.monotonic()
        _insert(rows, count - kept, now, n + 1)
        kept = count
        said = f"{count:,} rows: inserted in {time.monotonic() - began:.0f} s"
        began = time.monotonic()
        sums = _sum_up(now)
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE gateway_usage" if partitions.divided() else "ANALYZE")
            if partitions.divided():
                cursor.execute("VACUUM ANALYZE gateway_usagehour")
        print(f"{said}, {sums:,} sums in {time.monotonic() - began:.0f} s; {_size()}", flush=True)
        heads.append(f"{million:g} million")
        for query in queries.all_of(now):
            query.run()
            times = []
            for _ in range(3):
                began = time.perf_counter()
                query.run()
                times.append((time.perf_counter() - began) * 1000)
            table.setdefault(query.name, []).append(f"{statistics.median(times):.1f}")
    print(f"\n| ms | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}")
    for name, cells in table.items():
        print(f"| {name} | {' | '.join(cells)} |")
    print(f"\ningest with sums, batches of 500: {_ingest(now):,.0f} rows/s")
    if explain:
        for query in queries.all_of(now):
            if query.explain is not None:
                print(f"\n{query.name}\n{query.explain()}")


def _insert(rows, count: int, now, seed: int) -> None:  # type: ignore[no-untyped-def]
    from django.db import connection, transaction

    made = rows.rows(count, now, seed)
    names = ", ".join(rows.COLUMNS)
    with transaction.atomic(), connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            with cursor.copy(f"COPY gateway_usage ({names}, reason) FROM STDIN") as copy:
                for row in made:
                    copy.write_row((*row, ""))
            return
        places = ", ".join(["%s"] * (len(rows.COLUMNS) + 1))
        while batch := list(islice(made, 20_000)):
            cursor.executemany(
                f"INSERT INTO gateway_usage ({names}, reason) VALUES ({places})",
                [(row[0], row[1].replace(tzinfo=None).isoformat(" "), *row[2:], "") for row in batch],
            )


def _sum_up(now) -> int:  # type: ignore[no-untyped-def]
    from datetime import timedelta

    from bench.usage.rows import DAYS
    from gateway.control import partitions, rollups
    from gateway.models import UsageHour

    first = partitions.month_of(now - timedelta(days=DAYS + 1))
    rollups.rebuild(first, partitions.later(partitions.month_of(now), 1))
    return UsageHour.objects.count()


def _size() -> str:
    from django.conf import settings
    from django.db import connection

    if connection.vendor != "postgresql":
        return f"{Path(settings.MACHINE.database).stat().st_size / 2**20:,.0f} MiB"
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(pg_table_size(inhrelid)), sum(pg_indexes_size(inhrelid)), "
            "pg_total_relation_size('gateway_usagehour') FROM pg_inherits WHERE inhparent = 'gateway_usage'::regclass"
        )
        heap, indexes, sums = (int(v) / 2**20 for v in cursor.fetchone())
    return f"rows {heap:,.0f} MiB, their indexes {indexes:,.0f} MiB, sums {sums:,.0f} MiB"


def _ingest(now) -> float:  # type: ignore[no-untyped-def]
    import json

    from bench.usage import rows
    from gateway.control.ingesting import keep
    from gateway.models import Usage

    made = []
    for row in rows.rows(10_000, now, seed=99):
        fields = dict(zip(rows.COLUMNS, row, strict=True))
        fields |= {"at": now, "tags": json.loads(fields["tags"]), "hops": []}
        made.append(Usage(**fields))
    began = time.monotonic()
    for i in range(0, len(made), 500):
        keep(made[i : i + 500])
    return len(made) / (time.monotonic() - began)


if __name__ == "__main__":
    main()
