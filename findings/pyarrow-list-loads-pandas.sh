#!/usr/bin/env bash
# The first list of plain Python values that becomes an array of pyarrow loads pandas, wherever pandas is installed, and so does the
# first file that is read, although nothing there has to do with pandas. Importing pyarrow, computing and writing a file load
# nothing.
#
# Seen with pyarrow 26.0.1 and pandas 3.1.1: 0.2 s of CPU time and 40 MiB for `pyarrow.array([1])`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1 pandas==3.1.1
cd "$folder"
cat > program.py <<'PYTHON'
import resource
import sys
import time

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

table = pa.table([pa.nulls(3, pa.int64())], names=["number"])
pc.count(table["number"])
pq.write_table(table, "file.parquet")
assert "pandas" not in sys.modules, "importing, computing or writing loads it"
before_s, before_kb = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
pa.array([1]) if sys.argv[1] == "list" else pq.read_table("file.parquet")
spent_s, more_kb = time.process_time() - before_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
print(f"the first {sys.argv[1]}: {spent_s:.2f} s of CPU, {more_kb // 1024} MiB")
assert "pandas" in sys.modules
PYTHON
for first in list file; do venv/bin/python program.py $first; done
