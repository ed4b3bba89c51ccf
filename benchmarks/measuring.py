"""Shared by the benchmarks: options, measurements in fresh processes, medians, comparison of rows."""

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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from waybill.transport.process import prepare

Results = list[dict[str, Any]]
"""One item for each measurement: its case, and its figures by name."""


def parser_of(doc: str | None, *, rounds: int) -> argparse.ArgumentParser:
    """A parser with the options that every benchmark has."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds, help=f"rounds (default {rounds})")
    parser.add_argument("--folder", type=Path, help="the disk that is measured (default: a temporary folder)")
    parser.add_argument("--json", type=Path, help="write every measurement there")
    return parser


def add_rows_options(parser: argparse.ArgumentParser, cases: Sequence[str]) -> None:
    """Add the options of the benchmarks that write files: their rows, and the case to measure."""
    parser.add_argument(
        "--hours", type=int, default=24, help="hours that the rows are spread over (default 24)"
    )
    parser.add_argument(
        "--repeats", type=float, default=0.01, help="share of rows that come twice (default 0.01)"
    )
    parser.add_argument("--seed", type=int, default=7, help="seed of the records (default 7)")
    parser.add_argument("--only", choices=cases, help="measure this one, without the comparison")


def in_folder(arguments: argparse.Namespace, measure: Callable[[argparse.Namespace, Path], Results]) -> None:
    """Measure in a temporary folder, and write the results where `--json` says."""
    # What is installed is compiled; otherwise each process that is measured would compile all it loads.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    folder = Path(tempfile.mkdtemp(prefix="waybill-bench-", dir=arguments.folder))
    try:
        results = measure(arguments, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


def measured(benchmark: str, *words: object, errors: int | None = None) -> dict[str, Any]:
    """Run one measurement in a fresh process and return its figures.

    Args:
        benchmark: the module, which is run with `--worker` and prints its figures as JSON on its last line.
        words: the arguments of `--worker`.
        errors: where the process writes its log, as `subprocess` takes it.
    """
    prepare()  # as every command does; the rivals have their own allocators
    command = [sys.executable, "-m", benchmark, "--worker", *map(str, words)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=errors, text=True).stdout
    figures: dict[str, Any] = json.loads(output.splitlines()[-1])
    return figures


def median(results: Results, names: Sequence[str], **of: object) -> dict[str, float]:
    """The median of each named figure, over the measurements that have these values."""
    rows = [result for result in results if all(result[name] == value for name, value in of.items())]
    return {name: statistics.median(row[name] for row in rows) for name in names}


def cpu_s() -> float:
    """The CPU time that this process and its ended children have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def peak_mb(process: int | str = "self") -> float:
    """The peak memory of a process in MB; `getrusage` would include its parent's memory at the fork."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1_024


def files_of(folder: Path) -> tuple[int, float]:
    """The number of Parquet files below a folder, and their size in MB."""
    sizes = [path.stat().st_size for path in folder.rglob("*.parquet")]
    return len(sizes), sum(sizes) / 1e6


def check_same(ours: Path, theirs: Path, records: int) -> None:
    """Check that the Parquet files below two folders hold the same rows, and the expected number.

    Raises:
        SystemExit: they do not.
    """
    import duckdb

    connection = duckdb.connect()
    mine, others = (
        connection.read_parquet(f"{folder}/**/*.parquet", hive_partitioning=False)
        for folder in (ours, theirs)
    )
    # A writer without a map type writes a list of entries.
    maps = str(others.types[others.columns.index("annotations")]).startswith("MAP")
    columns = [
        f"map_from_entries({name}) AS {name}" if name == "annotations" and not maps else name
        for name in mine.columns
    ]
    others = others.project(", ".join(columns))
    counts = [len(mine), len(others)]
    differing = len(mine.except_(others))
    if counts != [records] * 2 or differing:
        raise SystemExit(
            f"the rows differ: {counts} of {records} records, {differing} of ours are not those of {theirs}"
        )
