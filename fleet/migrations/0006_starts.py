"""One table of start times: what runs of a kind have shown. Those of the last few starts by model go: the next start
of each kind tells again."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models

_SECONDS = ("fetch", "start")
_USUAL = {"llamacpp": 1}
"""Requests at once where a profile says nothing; of the other engines 64."""


def fill(apps: Any, schema_editor: Any) -> None:
    """What was measured is of runs with as many places as those that are there, else as their engine has by itself."""
    said = {}
    for spec in apps.get_model("fleet", "Replica").objects.exclude(spec={}).values_list("spec", flat=True):
        run = spec["profile"]
        said[spec["source"]["url"], run["engine"], run.get("context_length") or 0] = run.get("parallel", 1)
    for row in apps.get_model("fleet", "Learned").objects.all():
        key = (row.weights, row.engine, row.context_length)
        row.parallel = said.get(key, _USUAL.get(row.engine, 64))
        row.recent = [row.last] if row.kind in _SECONDS and row.n else []
        row.save()


class Migration(migrations.Migration):
    dependencies = [
        ("fleet", "0005_engine_builds"),
    ]

    operations = [
        migrations.DeleteModel(name="Start"),
        migrations.RemoveConstraint(model_name="learned", name="learned_once"),
        migrations.AddField(model_name="learned", name="parallel", field=models.PositiveIntegerField(default=0)),
        migrations.AddField(model_name="learned", name="recent", field=models.JSONField(default=list)),
        migrations.RunPython(fill, migrations.RunPython.noop),
        migrations.AddConstraint(
            model_name="learned",
            constraint=models.UniqueConstraint(
                fields=("weights", "engine", "gpu_class", "gpus", "nodes", "context_length", "parallel", "kind"),
                name="learned_once",
            ),
        ),
    ]
