from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('fleet', '0004_learned'),
    ]

    operations = [
        migrations.AddField(
            model_name='node',
            name='engine_builds',
            field=models.JSONField(blank=True, default=dict),
        ),
    ]
