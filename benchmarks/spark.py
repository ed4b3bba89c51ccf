"""How long a rebuild on Spark takes: Waybill against plain Spark SQL, by events and by cores.

    python -m benchmarks.spark                                           # one million events; 1 and 2 cores
    python -m benchmarks.spark --events 10000000 --hours 240 --rounds 1  # ten million

Both read the same JSON lines, take the records from the facets, merge repeats, sort, and write one zstd
file per system and hour; plain Spark SQL runs benchmarks/spark.sql over the lines of the file. Waybill also
looks for events without the facet, folds runs, and makes every file durable. Each measurement is a fresh
process and JVM; the start of the session, with a first job to warm it up, is not measured. They alternate,
and the median of the rounds is shown. The benchmark checks that both wrote the same rows.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.lines import ANNOTATIONS, write_lines
from benchmarks.measuring import Results, add_rows_options, check_same, in_folder, measured, median, parser_of

CASES: Final = ("waybill", "plain")
SQL: Final = Path(__file__).with_suffix(".sql")
RATIO_MAX: Final = 2.0
DRIVER_MEMORY: Final = "4g"


def main() -> None:
    """Write the file, have both rebuild from it in turn, and print the table."""
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument("--events", type=int, default=1_000_000, help="different events (default 1,000,000)")
    add_rows_options(parser, CASES)
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2], help="of Spark (default 1 and 2)")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        case, cores, lines, out = arguments.worker
        print(json.dumps(_work(case, int(cores), Path(lines), Path(out))))
    else:
        in_folder(arguments, _compare)


def _compare(arguments: argparse.Namespace, folder: Path) -> Results:
    lines = folder / "events.jsonl"
    count = write_lines(
        lines, arguments.events, hours=arguments.hours, repeats=arguments.repeats, seed=arguments.seed
    )
    print(f"{count:,} events, {arguments.hours} hours, {lines.stat().st_size / 1e6:.0f} MB of JSON lines\n")
    cases = (arguments.only,) if arguments.only else CASES
    results = []
    for _ in range(arguments.rounds):
        for cores in arguments.cores:
            outs = {case: folder / case for case in cases}
            for case, out in outs.items():
                os.sync()
                figures = measured("benchmarks.spark", case, cores, lines, out, errors=subprocess.DEVNULL)
                results.append({"case": case, "cores": cores, **figures})
            if len(cases) > 1:
                ours, theirs = (out / "provenance" for out in outs.values())
                check_same(ours, theirs, arguments.events)
            for out in outs.values():
                shutil.rmtree(out)
    print(f"{'':<10} {'cores':>6} {'wall s':>8} {'events/s':>9}")
    for cores in arguments.cores:
        medians = {case: median(results, ("wall_s",), case=case, cores=cores)["wall_s"] for case in cases}
        for case, wall_s in medians.items():
            print(f"{case:<10} {cores:>6} {wall_s:>8.2f} {count / wall_s:>9,.0f}")
        if len(cases) > 1:
            ratio = medians["waybill"] / medians["plain"]
            print(f"waybill / plain: {ratio:.2f} (goal: at most {RATIO_MAX})")
    return results


def _work(case: str, cores: int, lines: Path, out: Path) -> dict[str, float]:
    """Rebuild and return how long it took."""
    from pyspark import SparkConf, SparkContext

    from waybill.spark import find_java, plain_session

    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = SparkConf().setMaster(f"local[{cores}]").set("spark.driver.memory", DRIVER_MEMORY)
    conf.set("spark.ui.enabled", "false").set("spark.sql.session.timeZone", "UTC")
    SparkContext(conf=conf)
    spark = plain_session()
    spark.range(1_000).mapInArrow(lambda batches: batches, "id long").count()
    do = {"waybill": _waybill, "plain": _plain}[case]
    start_s = time.perf_counter()
    do(spark, lines, out)
    wall_s = time.perf_counter() - start_s
    spark.stop()
    return {"wall_s": wall_s}


def _waybill(spark: Any, lines: Path, out: Path) -> None:  # noqa: ANN401 - a session
    from waybill.exporter import Wanted
    from waybill.exporter.sources import LinesSource
    from waybill.facets import AnnotationRule
    from waybill.spark import rebuild_on_spark

    wanted = Wanted(system_name="benchmark", rule=AnnotationRule(frozenset(ANNOTATIONS)))
    rebuild_on_spark(spark, LinesSource((lines,)), out, wanted)


def _plain(spark: Any, lines: Path, out: Path) -> None:  # noqa: ANN401 - a session
    spark.read.text(str(lines)).createOrReplaceTempView("lines")
    rows = spark.sql(SQL.read_text())
    # Spark leaves the partition columns out of the files, so the system's name is there twice.
    rows = rows.withColumn("system", rows.system_name)
    rows.write.partitionBy("system", "day", "hour").option("compression", "zstd").parquet(
        str(out / "provenance")
    )


if __name__ == "__main__":
    main()
