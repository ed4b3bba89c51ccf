"""How large compacted files are with plain texts, and with the texts in delta encodings.

    python -m benchmarks.encodings    # a million records of 5 systems and 24 hours, and 500 records

Nothing is timed: the sizes are the same on each machine.
"""

from __future__ import annotations

from typing import Final
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.records import records
from waybill.exporter.parquet import encoding

DELTA: Final = {"did": "DELTA_BYTE_ARRAY", "filename": "DELTA_LENGTH_BYTE_ARRAY"}


def main() -> None:
    """Encode the same records both ways, and print the sizes."""
    table = encoding.sort(records(1_000_000, hours=24, systems=5, repeats=0, seed=1), "completed", "did")
    print(f"{'':>22} {'plain B':>12} {'delta B':>12} {'plain takes':>12}")
    for name, tables in (
        ("120 files, 1 M records", _by_file(table)),
        ("1 file, 500 records", [table.slice(0, 500)]),
    ):
        plain = _size_bytes(tables)
        with mock.patch.dict(encoding._ENCODING, DELTA):  # noqa: SLF001 - what is compared is no setting
            delta = _size_bytes(tables)
        print(f"{name:>22} {plain:>12,} {delta:>12,} {plain / delta - 1:>+12.1%}")


def _by_file(table: pa.Table) -> list[pa.Table]:
    hours = pc.floor_temporal(table["completed"], unit="hour")
    return [
        table.filter(pc.and_(pc.equal(table["system_name"], system), pc.equal(hours, hour)))
        for system in table["system_name"].unique()
        for hour in hours.unique()
    ]


def _size_bytes(tables: list[pa.Table]) -> int:
    return sum(len(encoding.encode(table, encoding.COMPACTED_FILTERS)) for table in tables)


if __name__ == "__main__":
    main()
