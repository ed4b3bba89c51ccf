#!/usr/bin/env bash
# An optional MAP column of a Parquet file can hold null and can hold a map without keys, and these differ. ClickHouse reads
# both as a map without keys, since its maps cannot be null: `annotations IS NULL` is never true there, and a count of the
# rows that have a map is too high. DuckDB, polars and pyarrow keep the two apart.
#
# Seen with chdb 4.4.0 (ClickHouse 26.9), duckdb 2.0.1, polars 2.1.0, pyarrow 26.0.1: of three rows (null, no keys, one
# key), ClickHouse finds 0 null and 2 without keys; the others find 1 and 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check chdb==4.4.0 duckdb==2.0.1 polars==2.1.0 pyarrow==26.0.1
cd "$folder"
venv/bin/python - <<'PYTHON'
import chdb
import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq

maps = pa.array([None, [], [("region", "north")]], pa.map_(pa.string(), pa.string()))
pq.write_table(pa.table({"annotations": maps}), "maps.parquet")


def by_clickhouse():
    sql = "SELECT countIf(annotations IS NULL), countIf(annotations IS NOT NULL AND length(annotations) = 0)"
    return [int(text) for text in str(chdb.query(f"{sql} FROM file('maps.parquet')")).split(",")]


def by_duckdb():
    sql = "SELECT count(*) FILTER (annotations IS NULL), count(*) FILTER (cardinality(annotations) = 0)"
    return list(duckdb.sql(f"{sql} FROM 'maps.parquet'").fetchall()[0])


def by_polars():
    return counts(polars.read_parquet("maps.parquet")["annotations"].to_list())


def by_pyarrow():
    return counts(pq.read_table("maps.parquet")["annotations"].to_pylist())


def counts(values):
    return [values.count(None), sum(value is not None and len(value) == 0 for value in values)]


EXPECTED = {by_clickhouse: [0, 2], by_duckdb: [1, 1], by_polars: [1, 1], by_pyarrow: [1, 1]}
for read, expected in EXPECTED.items():
    nulls, empty = read()
    print(f"{read.__name__:14} null: {nulls}, without keys: {empty}")
    assert [nulls, empty] == expected, "the behaviour has changed"
PYTHON
