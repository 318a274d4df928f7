"""Projects can say that answers given before a moment are not given again."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('tenancy', '0002_limits'),
    ]

    operations = [
        migrations.AddField(
            model_name='project',
            name='reuse_since',
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
