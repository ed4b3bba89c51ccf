"""How long it takes to rebuild the provenance files from JSON lines: Waybill, DuckDB and polars.

    python -m benchmarks.rebuild                       # one million terminal events with the facet, 24 hours
    python -m benchmarks.rebuild --events 10000000 --hours 240 --only waybill --rounds 1

All read the same file, take the records from the facets, merge repeats, sort, and write one zstd file per
system and hour. DuckDB runs benchmarks/compact.sql over rebuild.sql; the code for polars is below. Polars has
no maps: it is given the keys of the annotations, and writes lists of keys and values. Waybill also looks for
events without the facet, makes every file durable, and could continue after a crash. Each measurement is a
fresh process, and includes all its workers; they alternate, and the median of the rounds is shown. The
benchmark checks that all wrote the same rows. The second command shows the memory of a large rebuild, and
whether it takes ten times as long as the first.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from string import Template
from typing import Any, Final

from benchmarks.lines import ANNOTATIONS, write_lines
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
)

CASES: Final = ("waybill", "duckdb", "polars")
MERGE_SQL: Final = Path(__file__).with_name("compact.sql")
SQL: Final = Path(__file__).with_suffix(".sql")
FIGURES: Final = ("wall_s", "cpu_s", "peak_mb", "size_mb")
RATIO_MAX: Final = 1.0


def main() -> None:
    """Write the file, have each rebuild from it in turn, and print the table."""
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument("--events", type=int, default=1_000_000, help="different events (default 1,000,000)")
    add_rows_options(parser, CASES)
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        case, lines, out = arguments.worker
        print(json.dumps(_work(case, Path(lines), Path(out))))
    else:
        in_folder(arguments, _compare)


def _compare(arguments: argparse.Namespace, folder: Path) -> Results:
    lines = folder / "events.jsonl"
    cases = (arguments.only,) if arguments.only else CASES
    count = write_lines(
        lines, arguments.events, hours=arguments.hours, repeats=arguments.repeats, seed=arguments.seed
    )
    print(f"{count:,} events, {arguments.hours} hours, {lines.stat().st_size / 1e6:.0f} MB of JSON lines\n")
    results = []
    for round_ in range(arguments.rounds):
        for case in cases:
            out = folder / f"{round_}-{case}"
            os.sync()
            results.append(_measured(case, lines, out))
            if round_:
                shutil.rmtree(out)
    for rival in cases[1:]:
        check_same(folder / "0-waybill/provenance", folder / f"0-{rival}/provenance", arguments.events)
    print(f"{'':<10} {'wall s':>8} {'CPU s':>8} {'peak MB':>8} {'MB':>8}")
    medians = {case: median(results, FIGURES, case=case) for case in cases}
    for case, row in medians.items():
        print(
            f"{case:<10} {row['wall_s']:>8.2f} {row['cpu_s']:>8.2f} {row['peak_mb']:>8.0f} "
            f"{row['size_mb']:>8.1f}"
        )
    for rival in cases[1:]:
        ratio = medians["waybill"]["wall_s"] / medians[rival]["wall_s"]
        print(f"waybill / {rival}, wall: {ratio:.2f} (goal: at most {RATIO_MAX})")
    return results


def _work(case: str, lines: Path, out: Path) -> dict[str, float]:
    """Rebuild and return the time and memory, with child processes, without this process's imports."""
    do = {"waybill": _waybill, "duckdb": _duckdb, "polars": _polars}[case](lines, out)
    peak = _Peak()
    before, start_s = cpu_s(), time.perf_counter()
    do()
    wall_s = time.perf_counter() - start_s
    return {"wall_s": wall_s, "cpu_s": cpu_s() - before, "peak_mb": peak.stop()}


class _Peak(threading.Thread):
    """Watches how much memory this process and its children hold together."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._stopped = threading.Event()
        self._peak_kb = 0
        self.start()

    def run(self) -> None:
        while not self._stopped.wait(0.05):
            self._look()

    def stop(self) -> float:
        self._stopped.set()
        self.join()
        self._look()
        return self._peak_kb / 1_024

    def _look(self) -> None:
        total, own = 0, os.getpid()
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                text = status.read_text()
            except OSError:
                continue
            ours = int(status.parent.name) == own or int(text.partition("PPid:")[2].split()[0]) == own
            if ours and "VmRSS:" in text:
                total += int(text.partition("VmRSS:")[2].split()[0])
        self._peak_kb = max(self._peak_kb, total)


def _waybill(lines: Path, out: Path) -> Any:  # noqa: ANN401 - the call that is timed
    from waybill.exporter import Wanted, rebuild
    from waybill.exporter.sources import LinesSource
    from waybill.facets import AnnotationRule

    wanted = Wanted(system_name="benchmark", rule=AnnotationRule(frozenset(ANNOTATIONS)))
    return lambda: rebuild(LinesSource((lines,)), out, wanted, workers=os.cpu_count() or 1)


def _duckdb(lines: Path, out: Path) -> Any:  # noqa: ANN401 - the call that is timed
    import duckdb

    out.mkdir(parents=True)
    source = Template(SQL.read_text()).substitute(lines=lines)
    sql = Template(MERGE_SQL.read_text()).substitute(source=source, out=out / "provenance")
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return lambda: connection.execute(sql)


def _polars(lines: Path, out: Path) -> Any:  # noqa: ANN401 - the call that is timed
    import_module("polars")  # its import is not measured

    def do() -> None:
        parts = _rows_of(lines).partition_by("system_name", "day", "hour")
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(functools.partial(_write_part, out), parts))

    return do


def _rows_of(lines: Path) -> Any:  # noqa: ANN401 - a data frame
    """The records of a file, merged and sorted by polars, each with its day and hour."""
    import polars as pl

    def instant(name: str) -> Any:  # noqa: ANN401 - an expression
        return pl.col(name).str.to_datetime("%Y-%m-%dT%H:%M:%S%.3fZ", time_unit="ms", time_zone="UTC")

    def entry(name: str) -> Any:  # noqa: ANN401 - an expression
        pair = pl.struct(pl.lit(name).alias("key"), pl.col(name).alias("value"))
        return pl.when(pl.col(name).is_not_null()).then(pair)

    key = ["did", "system_name", "steps", "data_sink", "final_state", "completed"]
    return (
        _facets_of(lines)
        .select(
            "did",
            pl.col("parentDid").alias("parent_did"),
            pl.col("systemName").alias("system_name"),
            pl.col("dataSource").alias("data_source"),
            "filename",
            "transforms",
            # A list cannot be a key.
            pl.col("transforms").list.join("\0").alias("steps"),
            pl.col("dataSink").alias("data_sink"),
            pl.col("finalState").alias("final_state"),
            instant("created"),
            instant("completed"),
            "annotations",
        )
        .unnest("annotations")
        .group_by(key)
        .agg(
            pl.col("transforms").first(),
            pl.col("created").min(),
            pl.col("parent_did", "data_source", "filename", *ANNOTATIONS).max(),
        )
        .with_columns(
            annotations=pl.concat_list(*map(entry, ANNOTATIONS)).list.drop_nulls(),
            day=pl.col("completed").dt.strftime("%Y%m%d"),
            hour=pl.col("completed").dt.strftime("%H"),
        )
        .drop("steps", *ANNOTATIONS)
        .sort("completed", "did")
        .collect(engine="streaming")
    )


def _facets_of(lines: Path) -> Any:  # noqa: ANN401 - a lazy frame
    """The facets of the terminal events in a file."""
    import polars as pl

    texts = ["did", "parentDid", "systemName", "dataSource", "filename", "dataSink", "finalState"]
    fields: dict[str, Any] = {
        **dict.fromkeys((*texts, "created", "completed"), pl.String),
        "transforms": pl.List(pl.String),
        "annotations": pl.Struct(dict.fromkeys(ANNOTATIONS, pl.String)),
    }
    facets = pl.Struct({"waybill_deltaFile": pl.Struct(fields)})
    schema: dict[str, Any] = {"eventType": pl.String, "run": pl.Struct({"facets": facets})}
    facet = pl.col("run").struct.field("facets").struct.field("waybill_deltaFile")
    return (
        pl.scan_ndjson(lines, schema=schema)
        .filter(pl.col("eventType").is_in(["COMPLETE", "FAIL", "ABORT"]))
        .select(facet.alias("facet"))
        .filter(pl.col("facet").is_not_null())
        .unnest("facet")
    )


def _write_part(out: Path, part: Any) -> None:  # noqa: ANN401 - a data frame
    system_name, day, hour = part.select("system_name", "day", "hour").row(0)
    folder = out / "provenance" / system_name / day
    folder.mkdir(parents=True, exist_ok=True)
    part.drop("day", "hour").write_parquet(folder / f"{hour}.parquet", compression="zstd")


def _measured(case: str, lines: Path, out: Path) -> dict[str, Any]:
    figures = measured("benchmarks.rebuild", case, lines, out)
    return {"case": case, **figures, "size_mb": files_of(out)[1]}


if __name__ == "__main__":
    main()
