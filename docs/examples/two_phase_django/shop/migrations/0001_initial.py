"""The shop's tables, and the table of prepared transactions."""

import django.db.models.deletion
from django.db import migrations, models

from shop.orders import LOG


def create_log(_apps, editor):
    LOG.create(editor.connection)


class Migration(migrations.Migration):
    operations = [
        migrations.CreateModel("Order", [("name", models.CharField(max_length=100, primary_key=True))]),
        migrations.CreateModel(
            "Line",
            [
                ("id", models.BigAutoField(primary_key=True)),
                ("article", models.CharField(max_length=100)),
                ("order", models.ForeignKey("shop.order", on_delete=django.db.models.deletion.CASCADE)),
            ],
        ),
        migrations.RunPython(create_log, migrations.RunPython.noop),
    ]
