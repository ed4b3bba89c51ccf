"""How long raw files take to become compacted ones: our compactor beside DuckDB.

    python -m benchmarks.compact              # one million records over 24 hours and 5 systems
    python -m benchmarks.compact --backfill   # the same over 8,760 hours and 5 systems

Both read the same raw files, merge what came twice, sort, and write one zstd file per system and hour;
what DuckDB runs is benchmarks/compact.sql. Ours also makes every file durable before it removes the raw ones.
Each measurement is a fresh process; the two take turns, and the median of the rounds is shown. The rows of
both are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from string import Template
from typing import Any, Final

CASES: Final = ("waybill", "duckdb")
BATCH: Final = 50_000
SQL: Final = Path(__file__).with_suffix(".sql")
SIZE_MAX_MB: Final = 40
RATIO_MAX: Final = 0.8


def main() -> None:
    """Make the raw files, let both compact them in turns, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--records", type=int, default=1_000_000, help="different records (default 1,000,000)"
    )
    parser.add_argument("--hours", type=int, help="hours they are spread over (default 24)")
    parser.add_argument(
        "--systems", type=int, default=5, help="systems they come from, at most 5 (default 5)"
    )
    parser.add_argument("--repeats", type=float, default=0.01, help="share that comes twice (default 0.01)")
    parser.add_argument("--rounds", type=int, help="rounds of turns (default 5)")
    parser.add_argument("--backfill", action="store_true", help="8,760 hours, one round")
    parser.add_argument(
        "--only", choices=CASES, help="measure this one, without the comparison: DuckDB's backfill takes long"
    )
    parser.add_argument("--seed", type=int, default=7, help="of the records (default 7)")
    parser.add_argument("--folder", type=Path, help="the disk that is measured (default: a temporary folder)")
    parser.add_argument("--json", type=Path, help="write every measurement there")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        case, folder = arguments.worker
        print(json.dumps(_work(case, Path(folder))))
        return
    arguments.hours = arguments.hours or (8_760 if arguments.backfill else 24)
    arguments.rounds = arguments.rounds or (1 if arguments.backfill else 5)
    folder = Path(tempfile.mkdtemp(prefix="waybill-bench-", dir=arguments.folder))
    try:
        results = _compare(arguments, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


def _compare(arguments: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
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
            # Compaction removes raw files but never changes one, so links will do.
            shutil.copytree(folder / "raw", work, copy_function=os.link)
            os.sync()
            results.append(_measured(case, work))
            if round_:
                shutil.rmtree(work)
    if cases == CASES:
        _check_same(folder, arguments.records)
    print(f"{'':<10} {'wall s':>8} {'CPU s':>8} {'peak MB':>8} {'files':>8} {'MB':>8}")
    median = {case: _median(results, case) for case in cases}
    for case, row in median.items():
        print(
            f"{case:<10} {row['wall_s']:>8.2f} {row['cpu_s']:>8.2f} {row['peak_mb']:>8.0f} "
            f"{row['files']:>8.0f} {row['size_mb']:>8.1f}"
        )
    if cases == CASES:
        ratio = median["waybill"]["wall_s"] / median["duckdb"]["wall_s"]
        print(f"\nwaybill / duckdb, wall: {ratio:.2f} (to reach: at most {RATIO_MAX})")
    if "waybill" in median and not arguments.backfill:
        print(f"size: {median['waybill']['size_mb']:.1f} MB (to reach: at most {SIZE_MAX_MB})")
    return results


def _write_raw(arguments: argparse.Namespace, root: Path) -> tuple[int, int, float]:
    """Raw files as a projection writes them, batch after batch; how many rows, files and MB."""
    from benchmarks.records import records
    from waybill.exporter import RawName, RawWriter
    from waybill.exporter.work import workers_default

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
        writer.write_table(RawName("b0b0b0b0b0b0", start + 1, start + part.num_rows), part)
    return table.num_rows, *_measure_files(root)


def _work(case: str, folder: Path) -> dict[str, float]:
    """Compact a folder and tell what it took; imports do not count."""
    compact = {"waybill": _waybill, "duckdb": _duckdb}[case](folder)
    usage, start_s = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    compact()
    wall_s, after = time.perf_counter() - start_s, resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - usage.ru_utime - usage.ru_stime
    return {"wall_s": wall_s, "cpu_s": cpu_s, "peak_mb": _peak_mb()}


def _peak_mb() -> float:
    """The most memory this process ever held; `getrusage` would count what its parent held at the fork."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1_024


def _waybill(folder: Path) -> Any:  # noqa: ANN401 - what is to be timed
    from waybill.exporter import Compactor

    return Compactor(folder).compact


def _duckdb(folder: Path) -> Any:  # noqa: ANN401 - what is to be timed
    import duckdb

    out = folder / "provenance/compacted"
    sql = Template(SQL.read_text()).substitute(raw=folder / "provenance/raw", out=out)
    out.mkdir(parents=True)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"SET temp_directory = '{folder}/duckdb'")
    return lambda: connection.execute(sql)


def _measured(case: str, folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.compact", "--worker", case, str(folder)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    files, size_mb = _measure_files(folder / "provenance/compacted")
    return {"case": case, **json.loads(output.splitlines()[-1]), "files": files, "size_mb": size_mb}


def _measure_files(folder: Path) -> tuple[int, float]:
    sizes = [path.stat().st_size for path in folder.rglob("*.parquet")]
    return len(sizes), sum(sizes) / 1e6


def _median(results: list[dict[str, Any]], case: str) -> dict[str, float]:
    rows = [result for result in results if result["case"] == case]
    return {
        name: statistics.median(row[name] for row in rows)
        for name in ("wall_s", "cpu_s", "peak_mb", "files", "size_mb")
    }


def _check_same(folder: Path, records: int) -> None:
    """The first round's files of both hold the same rows."""
    import duckdb

    connection = duckdb.connect()
    ours, theirs = (
        connection.read_parquet(
            f"{folder}/0-{case}/provenance/compacted/**/*.parquet", hive_partitioning=False
        )
        for case in CASES
    )
    theirs = theirs.project(", ".join(ours.columns))
    counts = [len(ours), len(theirs)]
    differing = len(ours.except_(theirs))
    if counts != [records] * 2 or differing:
        raise SystemExit(
            f"the rows differ: {counts} of {records} records, {differing} of ours are not theirs"
        )


if __name__ == "__main__":
    main()
