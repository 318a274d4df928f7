from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('fleet', '0006_starts'),
    ]

    operations = [
        migrations.AddField(
            model_name='shard',
            name='cause',
            field=models.CharField(blank=True, default='', max_length=20),
        ),
    ]
