"""How long one flush takes, from a full journal to the last fsync of the compacted files.

    python -m benchmarks.flush                # one million records over 24 hours and 5 systems
    python -m benchmarks.flush --no-archive   # without the archive of every entry

The records are in the journal as DeltaFi sends them, 10,000 per entry. Each round is a fresh process with
a fresh home; the median of the rounds is shown.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.ingest import record_lines
from benchmarks.measuring import Results, cpu_s, files_of, in_folder, measured, median, parser_of, peak_mb

ANNOTATIONS: Final = "batchId,customer,priority,region"
BATCH: Final = 10_000
FIGURES: Final = ("wall_s", "cpu_s", "peak_mb", "files", "size_mb")
WALL_MAX_S: Final = 4.0
CPU_MAX_S: Final = 7.0


def main() -> None:
    """Fill a journal, flush it, and print the time and memory that the flush took."""
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument("--records", type=int, default=1_000_000, help="default 1,000,000")
    parser.add_argument("--hours", type=int, default=24, help="hours they are spread over (default 24)")
    parser.add_argument("--no-archive", action="store_true", help="without the archive")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        home, archive = arguments.worker
        print(json.dumps(_flushed(Path(home), archive=archive == "True")))
    else:
        in_folder(arguments, _flush)


def _flush(arguments: argparse.Namespace, folder: Path) -> Results:
    lines = record_lines(arguments.records, hours=arguments.hours)
    bodies = [b"[" + b",".join(lines[at : at + BATCH]) + b"]" for at in range(0, len(lines), BATCH)]
    results = []
    for round_ in range(arguments.rounds):
        home = folder / str(round_)
        figures = flush_bodies(bodies, home, archive=not arguments.no_archive)
        shutil.rmtree(home)
        if figures["rows"] != arguments.records:
            raise SystemExit("not every record is in the files")
        results.append(figures)
    print(f"{arguments.records:,} records in the journal, {arguments.hours:,} hours, 5 systems\n")
    print(f"{'wall s':>8} {'CPU s':>8} {'peak MB':>8} {'files':>8} {'MB':>8}")
    row = median(results, FIGURES)
    print(
        f"{row['wall_s']:>8.2f} {row['cpu_s']:>8.2f} {row['peak_mb']:>8.0f} {row['files']:>8.0f} "
        f"{row['size_mb']:>8.1f}"
    )
    print(f"\ngoal: {WALL_MAX_S:g} s, {CPU_MAX_S:g} CPU s")
    return results


def flush_bodies(bodies: list[bytes], home: Path, *, archive: bool) -> dict[str, Any]:
    """The figures of a flush of these batches of records, in a fresh process with a new home."""
    from waybill.transport import Journal, Kind

    journal = Journal(home)
    for body in bodies:
        journal.append(Kind.PROVENANCE, body, "")
    journal.close()
    return measured("benchmarks.flush", home, archive)


def _flushed(home: Path, *, archive: bool) -> dict[str, Any]:
    """Flush in this process, which becomes the home's runner; imports count, as they do for a user."""
    before_s, began_s = cpu_s(), time.perf_counter()
    from waybill.transport import Settings, flush

    given = {
        "home": home,
        "provenance_enabled": True,
        "provenance_annotations_allowed": ANNOTATIONS,
        "archive_enabled": archive,
    }
    report = flush(Settings.load(given, env={}))
    wall_s, used_s = time.perf_counter() - began_s, cpu_s() - before_s
    if report.left or report.problems:
        raise SystemExit(f"the flush left {report.left} entries: {report.problems}")
    import pyarrow.parquet as pq

    folder = home / "provenance/compacted"
    files, size_mb = files_of(folder)
    return {
        "wall_s": wall_s,
        "cpu_s": used_s,
        "peak_mb": peak_mb(),
        "files": files,
        "size_mb": size_mb,
        "rows": sum(pq.read_metadata(file).num_rows for file in folder.rglob("*.parquet")),
    }


if __name__ == "__main__":
    main()
