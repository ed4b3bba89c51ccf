#!/usr/bin/env bash
# Texts that a Parquet file holds in the encodings DELTA_BYTE_ARRAY and DELTA_LENGTH_BYTE_ARRAY, which the format has had
# since 2013 and which pyarrow writes and reads, cannot be read by fastparquet and Kuzu. Both read plain texts and the same
# encoding's relative for numbers, DELTA_BINARY_PACKED.
#
# Seen with pyarrow 26.0.1, fastparquet 2026.9.0, kuzu 0.11.3: each of the two encodings is an error in both readers.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1 fastparquet==2026.9.0 kuzu==0.11.3 pandas==3.1.1
cd "$folder"
venv/bin/python - <<'PYTHON'
import fastparquet
import kuzu
import pyarrow as pa
import pyarrow.parquet as pq

TEXTS = [f"feed_{number}.csv" for number in range(100)]
EXPECTED = {
    ("name", "PLAIN"): True,
    ("number", "DELTA_BINARY_PACKED"): True,
    ("name", "DELTA_LENGTH_BYTE_ARRAY"): False,
    ("name", "DELTA_BYTE_ARRAY"): False,
}


def by_fastparquet(column):
    return fastparquet.ParquetFile("file.parquet").to_pandas(columns=[column])[column].tolist()


def by_kuzu(column):
    answer = kuzu.Connection(kuzu.Database(":memory:")).execute(f"LOAD FROM 'file.parquet' RETURN {column}")
    return [row[0] for row in answer]


table = pa.table({"name": TEXTS, "number": pa.array(range(100), pa.int64())})
for (column, encoding), is_readable in EXPECTED.items():
    pq.write_table(table, "file.parquet", use_dictionary=False, column_encoding={column: encoding})
    wanted = table[column].to_pylist()
    assert pq.read_table("file.parquet")[column].to_pylist() == wanted
    for read in (by_fastparquet, by_kuzu):
        try:
            seen = "right" if read(column) == wanted else "wrong values"
        except Exception as error:
            seen = f"{type(error).__name__}: {str(error).splitlines()[0][:90]}"
        print(f"{encoding:24} {read.__name__:15} {seen}")
        assert (seen == "right") == is_readable, "the behaviour has changed"
PYTHON
