"""How long it takes to compact raw files: Waybill against DuckDB.

    python -m benchmarks.compact              # one million records over 24 hours and 5 systems
    python -m benchmarks.compact --backfill   # the same over 8,760 hours and 5 systems

Both read the same raw files, merge repeats, sort, and write one zstd file per system and hour; DuckDB runs
benchmarks/compact.sql. Waybill also makes every file durable before it removes the raw ones. Each
measurement is a fresh process; the two alternate, and the median of the rounds is shown. The benchmark checks
that both wrote the same rows.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from pathlib import Path
from string import Template
from typing import Any, Final

from benchmarks.measuring import (
    Results,
    add_rows_options,
    check_same,
    cpu_s,
    files_of,
    in_folder,
    measured,
    median,
    parser_of,
    peak_mb,
)

CASES: Final = ("waybill", "duckdb")
FIGURES: Final = ("wall_s", "cpu_s", "peak_mb", "files", "size_mb")
BATCH: Final = 50_000
SQL: Final = Path(__file__).with_suffix(".sql")
SIZE_MAX_MB: Final = 40
RATIO_MAX: Final = 0.8


def main() -> None:
    """Write the raw files, have both compact them in turn, and print the table."""
    parser = parser_of(__doc__, rounds=5)
    parser.add_argument(
        "--records", type=int, default=1_000_000, help="different records (default 1,000,000)"
    )
    add_rows_options(parser, CASES)
    parser.add_argument(
        "--systems", type=int, default=5, help="systems they come from, at most 5 (default 5)"
    )
    parser.add_argument("--backfill", action="store_true", help="8,760 hours, one round")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        case, folder = arguments.worker
        print(json.dumps(_work(case, Path(folder))))
        return
    if arguments.backfill:
        arguments.hours, arguments.rounds = 8_760, 1
    in_folder(arguments, _compare)


def _compare(arguments: argparse.Namespace, folder: Path) -> Results:
    rows, files, size_mb = _write_raw(arguments, folder / "raw")
    print(
        f"{arguments.records:,} records and {rows - arguments.records:,} repeats, {arguments.hours:,} hours, "
        f"{arguments.systems} systems: {files:,} raw files, {size_mb:.1f} MB\n"
    )
    results = []
    cases = (arguments.only,) if arguments.only else CASES
    for round_ in range(arguments.rounds):
        for case in cases:
            work = folder / f"{round_}-{case}"
            # Compaction removes raw files but never changes one, so hard links are enough.
            shutil.copytree(folder / "raw", work, copy_function=os.link)
            os.sync()
            results.append(_measured(case, work))
            if round_:
                shutil.rmtree(work)
    if cases == CASES:
        ours, theirs = (folder / f"0-{case}/provenance/compacted" for case in CASES)
        check_same(ours, theirs, arguments.records)
    print(f"{'':<10} {'wall s':>8} {'CPU s':>8} {'peak MB':>8} {'files':>8} {'MB':>8}")
    medians = {case: median(results, FIGURES, case=case) for case in cases}
    for case, row in medians.items():
        print(
            f"{case:<10} {row['wall_s']:>8.2f} {row['cpu_s']:>8.2f} {row['peak_mb']:>8.0f} "
            f"{row['files']:>8.0f} {row['size_mb']:>8.1f}"
        )
    if cases == CASES:
        ratio = medians["waybill"]["wall_s"] / medians["duckdb"]["wall_s"]
        print(f"\nwaybill / duckdb, wall: {ratio:.2f} (goal: at most {RATIO_MAX})")
    if "waybill" in medians and not arguments.backfill:
        print(f"size: {medians['waybill']['size_mb']:.1f} MB (goal: at most {SIZE_MAX_MB})")
    return results


def _write_raw(arguments: argparse.Namespace, root: Path) -> tuple[int, int, float]:
    """Write raw files as a projection does, batch by batch; return the number of rows, files and MB."""
    from benchmarks.records import records
    from waybill.exporter.compaction import RawWriter
    from waybill.exporter.names import RawName
    from waybill.exporter.parallel import workers_default

    table = records(
        arguments.records,
        hours=arguments.hours,
        systems=arguments.systems,
        repeats=arguments.repeats,
        seed=arguments.seed,
    )
    writer = RawWriter(root, workers=workers_default())
    for start in range(0, table.num_rows, BATCH):
        part = table.slice(start, BATCH)
        writer.write_tables(RawName("b0b0b0b0b0b0", start + 1, start + part.num_rows), [part])
    return table.num_rows, *files_of(root)


def _work(case: str, folder: Path) -> dict[str, float]:
    """Compact a folder and return the time and memory it took, without the imports."""
    compact = {"waybill": _waybill, "duckdb": _duckdb}[case](folder)
    before, start_s = cpu_s(), time.perf_counter()
    compact()
    wall_s = time.perf_counter() - start_s
    return {"wall_s": wall_s, "cpu_s": cpu_s() - before, "peak_mb": peak_mb()}


def _waybill(folder: Path) -> Any:  # noqa: ANN401 - the call that is timed
    from waybill.exporter import Compactor

    return Compactor(folder).compact


def _duckdb(folder: Path) -> Any:  # noqa: ANN401 - the call that is timed
    import duckdb

    raw, out = folder / "provenance/raw/*/*/*.parquet", folder / "provenance/compacted"
    sql = Template(SQL.read_text()).substitute(source=f"read_parquet('{raw}')", out=out)
    out.mkdir(parents=True)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"SET temp_directory = '{folder}/duckdb'")
    return lambda: connection.execute(sql)


def _measured(case: str, folder: Path) -> dict[str, Any]:
    figures = measured("benchmarks.compact", case, folder)
    files, size_mb = files_of(folder / "provenance/compacted")
    return {"case": case, **figures, "files": files, "size_mb": size_mb}


if __name__ == "__main__":
    main()
