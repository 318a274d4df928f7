"""Usage rows get who they are for, what they cost and who answered; their sums by the hour; and, on PostgreSQL, months.

A table that has rows becomes the first partition as it is, so that nothing is copied. All of it is one transaction:
a run that was broken off is run again from the start.
"""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import migrations, models

TABLE, BEFORE = "gateway_usage", "gateway_usage_before"
_KEPT = ("organisation", "team", "project", "key", "person", "model")


def free_the_key(apps, schema_editor):
    """PostgreSQL wants the old key gone before there is a new one; SQLite's table is made anew."""
    if schema_editor.connection.vendor == "postgresql":
        with schema_editor.connection.cursor() as cursor:
            _drop_key(cursor)


def _drop_key(cursor):
    cursor.execute("SELECT conname FROM pg_constraint WHERE conrelid = %s::regclass AND contype = 'p'", [TABLE])
    for (name,) in cursor.fetchall():
        cursor.execute(f'ALTER TABLE {TABLE} DROP CONSTRAINT "{name}"')


def sum_up(apps, schema_editor):
    """The sums of the rows that there are."""
    postgresql = schema_editor.connection.vendor == "postgresql"
    hour = "date_trunc('hour', at, 'UTC')" if postgresql else "strftime('%Y-%m-%d %H:00:00', at)"
    names = ", ".join(f'"{name}"' for name in _KEPT)
    schema_editor.execute(
        f"""INSERT INTO gateway_usagehour (at, {names}, requests, failed, refused, uncounted, estimated, hits,
            prompt_tokens, completion_tokens, cached_tokens, cost, unpriced)
        SELECT {hour}, {names}, COUNT(*),
            SUM(CASE WHEN outcome IN ('engine_failed', 'timed_out', 'unknown') THEN 1 ELSE 0 END),
            SUM(CASE WHEN outcome = 'refused' THEN 1 ELSE 0 END),
            SUM(CASE WHEN outcome <> 'refused' AND (prompt_tokens IS NULL
                OR completion_tokens IS NULL AND endpoint <> 'embeddings') THEN 1 ELSE 0 END),
            SUM(CASE WHEN estimated THEN 1 ELSE 0 END), 0,
            COALESCE(SUM(prompt_tokens), 0), COALESCE(SUM(completion_tokens), 0), COALESCE(SUM(cached_tokens), 0),
            0, SUM(CASE WHEN outcome <> 'refused' THEN 1 ELSE 0 END)
        FROM {TABLE} GROUP BY 1, {names}"""
    )


def divide(apps, schema_editor):
    """PostgreSQL: the table becomes one that is partitioned by month; its rows, if any, its first partition."""
    if schema_editor.connection.vendor != "postgresql":
        return
    usage = apps.get_model("gateway", "Usage")
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT relkind FROM pg_class WHERE oid = %s::regclass", [TABLE])
        if cursor.fetchone()[0] == "p":
            return
        _drop_key(cursor)
        cursor.execute(
            "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = %s::regclass", [TABLE]
        )
        ours = {index.name for index in usage._meta.indexes}
        for (name,) in cursor.fetchall():
            if name.strip('"') in ours:
                cursor.execute(f"ALTER INDEX {name} RENAME TO {name}_before")
            else:
                cursor.execute(f"DROP INDEX {name}")
        # Ids sort by their bytes, whatever the store's language: a part of one finds the rest by the index.
        cursor.execute(f'ALTER TABLE {TABLE} ALTER COLUMN request_id TYPE varchar(40) COLLATE "C"')
        cursor.execute(f"ALTER TABLE {TABLE} RENAME TO {BEFORE}")
        cursor.execute(
            f"CREATE TABLE {TABLE} (LIKE {BEFORE} INCLUDING CONSTRAINTS, PRIMARY KEY (request_id, at)) "
            "PARTITION BY RANGE (at)"
        )
        for index in usage._meta.indexes:
            schema_editor.add_index(usage, index)
        cursor.execute(f"CREATE INDEX usage_tags ON {TABLE} USING gin (tags jsonb_path_ops) WHERE tags <> '{{}}'")
        cursor.execute(f"CREATE TABLE {TABLE}_default PARTITION OF {TABLE} DEFAULT")
        cursor.execute(f"SELECT max(at) FROM {BEFORE}")
        last = cursor.fetchone()[0]
        if last is None:
            cursor.execute(f"DROP TABLE {BEFORE}")
            return
        last = max(last, datetime.now(UTC)).astimezone(UTC)
        until = datetime(last.year + last.month // 12, last.month % 12 + 1, 1, tzinfo=UTC)
        cursor.execute(
            f"ALTER TABLE {TABLE} ATTACH PARTITION {BEFORE} FOR VALUES FROM (MINVALUE) TO ('{until.isoformat()}')"
        )


def join(apps, schema_editor):
    """Back to one table."""
    if schema_editor.connection.vendor != "postgresql":
        return
    usage = apps.get_model("gateway", "Usage")
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {TABLE}_whole (LIKE {TABLE} INCLUDING CONSTRAINTS)")
        cursor.execute(f"INSERT INTO {TABLE}_whole SELECT * FROM {TABLE}")
        cursor.execute(f"DROP TABLE {TABLE}")
        cursor.execute(f"ALTER TABLE {TABLE}_whole RENAME TO {TABLE}")
    for index in usage._meta.indexes:
        schema_editor.add_index(usage, index)


class Migration(migrations.Migration):

    dependencies = [
        ('gateway', '0001_start'),
    ]

    operations = [
        migrations.CreateModel(
            name='UsageCorrection',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('made_at', models.DateTimeField(auto_now_add=True)),
                ('actor', models.CharField(max_length=200)),
                ('reason', models.CharField(max_length=300)),
                ('at', models.DateTimeField()),
                ('organisation', models.CharField(blank=True, max_length=16)),
                ('team', models.CharField(blank=True, max_length=16)),
                ('project', models.CharField(blank=True, max_length=16)),
                ('key', models.CharField(blank=True, max_length=16)),
                ('person', models.CharField(blank=True, max_length=16)),
                ('model', models.CharField(max_length=120)),
                ('requests', models.BigIntegerField()),
                ('delta', models.BigIntegerField()),
            ],
            options={
                'verbose_name': 'correction of usage',
                'verbose_name_plural': 'corrections of usage',
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='UsageHour',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField()),
                ('organisation', models.CharField(blank=True, max_length=16)),
                ('team', models.CharField(blank=True, max_length=16)),
                ('project', models.CharField(blank=True, max_length=16)),
                ('key', models.CharField(blank=True, max_length=16)),
                ('person', models.CharField(blank=True, max_length=16)),
                ('model', models.CharField(max_length=120)),
                ('requests', models.BigIntegerField(default=0)),
                ('failed', models.BigIntegerField(default=0)),
                ('refused', models.BigIntegerField(default=0)),
                ('uncounted', models.BigIntegerField(default=0)),
                ('estimated', models.BigIntegerField(default=0)),
                ('hits', models.BigIntegerField(default=0)),
                ('prompt_tokens', models.BigIntegerField(default=0)),
                ('completion_tokens', models.BigIntegerField(default=0)),
                ('cached_tokens', models.BigIntegerField(default=0)),
                ('cost', models.BigIntegerField(default=0)),
                ('unpriced', models.BigIntegerField(default=0)),
            ],
            options={
                'verbose_name': 'usage of an hour',
                'verbose_name_plural': 'usage by hour',
            },
        ),
        migrations.RunPython(free_the_key, migrations.RunPython.noop, elidable=False),
        migrations.AlterField(
            model_name='usage',
            name='request_id',
            field=models.CharField(max_length=40, primary_key=True, serialize=False),
        ),
        migrations.RemoveField(
            model_name='usage',
            name='id',
        ),
        migrations.AddField(
            model_name='usage',
            name='cache',
            field=models.CharField(blank=True, max_length=8),
        ),
        migrations.AddField(
            model_name='usage',
            name='cost',
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name='usage',
            name='end_user',
            field=models.CharField(blank=True, max_length=256),
        ),
        migrations.AddField(
            model_name='usage',
            name='hops',
            field=models.JSONField(blank=True, default=list),
        ),
        migrations.AddField(
            model_name='usage',
            name='queued_ms',
            field=models.FloatField(null=True),
        ),
        migrations.AddField(
            model_name='usage',
            name='served',
            field=models.CharField(blank=True, max_length=120),
        ),
        migrations.AddField(
            model_name='usage',
            name='session',
            field=models.CharField(blank=True, max_length=128),
        ),
        migrations.AddField(
            model_name='usage',
            name='tags',
            field=models.JSONField(blank=True, default=dict),
        ),
        migrations.AlterField(
            model_name='usage',
            name='at',
            field=models.DateTimeField(),
        ),
        migrations.AlterField(
            model_name='usage',
            name='model',
            field=models.CharField(max_length=120),
        ),
        migrations.AddIndex(
            model_name='usage',
            index=models.Index(fields=['-at'], name='usage_at'),
        ),
        migrations.AddIndex(
            model_name='usage',
            index=models.Index(fields=['model', '-at'], name='usage_model_at'),
        ),
        migrations.AddIndex(
            model_name='usage',
            index=models.Index(fields=['person', '-at'], name='usage_person_at'),
        ),
        migrations.AddIndex(
            model_name='usage',
            index=models.Index(condition=models.Q(('outcome', 'ok'), _negated=True), fields=['outcome', '-at'], name='usage_outcome_at'),
        ),
        migrations.AddIndex(
            model_name='usage',
            index=models.Index(condition=models.Q(('outcome', 'ok'), _negated=True), fields=['status', '-at'], name='usage_status_at'),
        ),
        migrations.AddIndex(
            model_name='usage',
            index=models.Index(condition=models.Q(('session', ''), _negated=True), fields=['session', '-at'], name='usage_session_at'),
        ),
        migrations.AddIndex(
            model_name='usagecorrection',
            index=models.Index(fields=['at', 'model'], name='usage_correction_at'),
        ),
        migrations.AddIndex(
            model_name='usagehour',
            index=models.Index(fields=['organisation', 'at'], name='usage_hour_organisation'),
        ),
        migrations.AddIndex(
            model_name='usagehour',
            index=models.Index(fields=['team', 'at'], name='usage_hour_team'),
        ),
        migrations.AddIndex(
            model_name='usagehour',
            index=models.Index(fields=['project', 'at'], name='usage_hour_project'),
        ),
        migrations.AddIndex(
            model_name='usagehour',
            index=models.Index(fields=['key', 'at'], name='usage_hour_key'),
        ),
        migrations.AddIndex(
            model_name='usagehour',
            index=models.Index(fields=['person', 'at'], name='usage_hour_person'),
        ),
        migrations.AddConstraint(
            model_name='usagehour',
            constraint=models.UniqueConstraint(fields=('at', 'organisation', 'team', 'project', 'key', 'person', 'model'), name='usage_hour_once'),
        ),
        migrations.RunPython(sum_up, migrations.RunPython.noop, elidable=False),
        migrations.RunPython(divide, join, elidable=False),
    ]
