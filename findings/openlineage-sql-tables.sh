#!/usr/bin/env bash
# openlineage-sql, which Airflow's provider asks for the tables of each SQL text, finds other tables than the text names in three
# kinds of ordinary statements: it leaves out the table that MySQL's UPDATE joins, takes a temporary table of the same script for
# a table of the database, and takes a function that gives rows for a table. Its answer has no error in any of them.
#
# Seen with openlineage-sql 1.54.0: `UPDATE orders JOIN rates …` reads nothing; a script that fills `step` and reads it has
# `step` among its inputs and outputs; `FROM json_each(…)` has `json_each` among its inputs.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check openlineage-sql==1.54.0
"$folder/venv/bin/python" - <<'PYTHON'
import openlineage_sql

CASES = [
    ("a joined update", "mysql",
     "UPDATE orders AS o JOIN rates AS r ON r.day = o.day SET o.net = o.total * r.rate",
     [], ["orders"]),
    ("a temporary table", "postgres",
     "CREATE TEMPORARY TABLE step AS SELECT id FROM orders; INSERT INTO result (id) SELECT id FROM step",
     ["orders", "step"], ["result", "step"]),
    ("a function", "postgres",
     "INSERT INTO result (id) SELECT t.key FROM orders o, json_each(o.tags) AS t",
     ["json_each", "orders"], ["result"]),
]
for kind, dialect, text, inputs, outputs in CASES:
    found = openlineage_sql.parse([text], dialect=dialect)
    told = [sorted(one.name for one in tables) for tables in (found.in_tables, found.out_tables)]
    print(f"{kind:17} in: {told[0]}, out: {told[1]}, errors: {found.errors}")
    assert (told, found.errors) == ([inputs, outputs], []), "the behaviour has changed"
PYTHON
