#!/usr/bin/env bash
# DuckDB's Python package draws a progress bar on the standard output of a query that takes longer than two seconds, also where
# that is a file or a pipe, if the program was given as text (`python -c`). The same program as a file prints nothing but its own
# output. So a task that pipes `python -c "… duckdb …"` into another program hands it the bar along with the answer.
#
# Seen with duckdb 2.0.0: over 1,000 bytes of progress come before an answer of 11. `SET enable_progress_bar = false` prevents it.
# As an option of `duckdb.connect(config=…)` that setting is refused: it is none of a whole database.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.0
cd "$folder"
cat > program.py <<'PYTHON'
import sys
import time

import duckdb

connection = duckdb.connect()
if "quiet" in sys.argv:
    connection.execute("SET enable_progress_bar = false")
began_s, number = time.monotonic(), 20_000
while time.monotonic() - began_s < 5:  # until one query takes long enough, however fast the machine is
    number *= 2
    began_s = time.monotonic()
    query = f"SELECT sum(sin(a.range * b.range)) > 2 FROM range({number}) a, range(6000) b"
    answer = connection.execute(query).fetchone()
print("the answer")
PYTHON
cat > refused.py <<'PYTHON'
import duckdb

try:
    duckdb.connect(config={"enable_progress_bar": "false"})
except duckdb.InvalidInputException:
    print("refused")
PYTHON
venv/bin/python -c "$(cat program.py)" > as-text
venv/bin/python -c "$(cat program.py)" quiet > as-text-quiet
venv/bin/python program.py > as-file
echo "given as text: $(wc -c < as-text) bytes; with the setting: $(wc -c < as-text-quiet); as a file: $(wc -c < as-file)"
[ "$(cat as-file)" = "the answer" ]
[ "$(cat as-text-quiet)" = "the answer" ]
[ "$(wc -c < as-text)" -gt 100 ]
grep -q '%' as-text
[ "$(venv/bin/python refused.py)" = refused ]
