"""How long a full journal takes to become compacted files: one flush, from the journal to the last fsync.

    python -m benchmarks.flush                # one million records over 24 hours and 5 systems
    python -m benchmarks.flush --no-archive   # without the archive of every entry

The records are in the journal as DeltaFi sends them, 10,000 in an entry. Each round is a fresh process with a
fresh home; the median of the rounds is shown.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.ingest import peak_mb, record_lines

ANNOTATIONS: Final = "batchId,customer,priority,region"
BATCH: Final = 10_000
WALL_MAX_S: Final = 4.0
CPU_MAX_S: Final = 7.0


def main() -> None:
    """Fill a journal, flush it, and print what that took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000, help="default 1,000,000")
    parser.add_argument("--hours", type=int, default=24, help="hours they are spread over (default 24)")
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--no-archive", action="store_true", help="without the archive")
    parser.add_argument("--folder", type=Path, help="the disk that is measured (default: a temporary folder)")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(_flushed(arguments.worker, archive=not arguments.no_archive)))
        return
    lines = record_lines(arguments.records, hours=arguments.hours)
    bodies = [b"[" + b",".join(lines[at : at + BATCH]) + b"]" for at in range(0, len(lines), BATCH)]
    results = [_round(bodies, arguments) for _ in range(arguments.rounds)]
    print(f"{arguments.records:,} records in the journal, {arguments.hours:,} hours, 5 systems\n")
    print(f"{'wall s':>8} {'CPU s':>8} {'peak MB':>8} {'files':>8} {'MB':>8}")
    row = {name: statistics.median(result[name] for result in results) for name in results[0]}
    print(
        f"{row['wall_s']:>8.2f} {row['cpu_s']:>8.2f} {row['peak_mb']:>8.0f} {row['files']:>8.0f} "
        f"{row['size_mb']:>8.1f}"
    )
    print(f"\nto reach: {WALL_MAX_S:g} s, {CPU_MAX_S:g} CPU s")


def _round(bodies: list[bytes], arguments: argparse.Namespace) -> dict[str, float]:
    from waybill.transport import Journal, Kind

    with tempfile.TemporaryDirectory(prefix="waybill-bench-", dir=arguments.folder) as folder:
        journal = Journal(Path(folder))
        for body in bodies:
            journal.append(Kind.PROVENANCE, body, "")
        journal.close()
        command = [sys.executable, "-m", __spec__.name, "--worker", folder]
        command += ["--no-archive"] if arguments.no_archive else []
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        measured: dict[str, float] = json.loads(output)
    if measured.pop("rows") != arguments.records:
        raise SystemExit("not every record is in the files")
    return measured


def _flushed(home: Path, *, archive: bool) -> dict[str, Any]:
    """Flush in this process, which is the home's runner for so long; imports count, as for a user."""
    began_s = time.perf_counter()
    from waybill.transport import Settings, flush

    given = {
        "home": home,
        "provenance_enabled": True,
        "provenance_annotations_allowed": ANNOTATIONS,
        "archive_enabled": archive,
    }
    report = flush(Settings.load(given, env={}))
    wall_s, usage = time.perf_counter() - began_s, resource.getrusage(resource.RUSAGE_SELF)
    if report.left or report.problems:
        raise SystemExit(f"the flush left {report.left} entries: {report.problems}")
    import pyarrow.parquet as pq

    files = list((home / "provenance/compacted").rglob("*.parquet"))
    return {
        "wall_s": wall_s,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_mb": peak_mb(os.getpid()),
        "files": len(files),
        "size_mb": sum(file.stat().st_size for file in files) / 1e6,
        "rows": sum(pq.read_metadata(file).num_rows for file in files),
    }


if __name__ == "__main__":
    main()
