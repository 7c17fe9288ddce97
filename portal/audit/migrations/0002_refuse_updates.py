"""The database itself refuses to change rows of the audit log, whoever asks."""

from __future__ import annotations

from django.db import migrations

TABLE = "audit_auditevent"
MESSAGE = "rows of the audit log are not changed"

FORWARDS = {
    "sqlite": [
        f"CREATE TRIGGER audit_append_only BEFORE UPDATE ON {TABLE} "
        f"BEGIN SELECT RAISE(ABORT, '{MESSAGE}'); END",
    ],
    "postgresql": [
        "CREATE FUNCTION audit_refuse_update() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{MESSAGE}'; END $$",
        f"CREATE TRIGGER audit_append_only BEFORE UPDATE ON {TABLE} "
        "FOR EACH ROW EXECUTE FUNCTION audit_refuse_update()",
    ],
}
BACKWARDS = {
    "sqlite": ["DROP TRIGGER audit_append_only"],
    "postgresql": [
        f"DROP TRIGGER audit_append_only ON {TABLE}",
        "DROP FUNCTION audit_refuse_update()",
    ],
}


def _run(statements):
    def run(apps, schema_editor):
        for statement in statements.get(schema_editor.connection.vendor, []):
            schema_editor.execute(statement, params=None)

    return run


class Migration(migrations.Migration):
    dependencies = [("audit", "0001_initial")]

    operations = [migrations.RunPython(_run(FORWARDS), _run(BACKWARDS))]
