"""The cost of tracking for a PySpark job: bare, with the OpenLineage listener alone, and with Waybill.

    python -m benchmarks.tracked

The job reads Parquet and writes it again in many small writes, each after a shuffle. *listener* is plain
configuration with a backend that answers at once. *waybill* is a tracked session whose backend answers at
once; *hanging* is one whose backend never answers. Each measurement is a fresh process, JVM and home; they
alternate. The benchmark measures the job, which a user waits for, and `stop()`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.backend import StandIn
from benchmarks.measuring import Results, in_folder, measured, median, parser_of

CASES: Final = ("bare", "listener", "waybill", "hanging")
RATIO_MAX: Final = 1.03
STOP_MAX_S: Final = 1.0

_MASTER: Final = "local[1]"
"""One core is left to everything else, as on a driver that computes little itself."""


def main() -> None:
    """Run the job in each way in turn, and print the table."""
    parser = parser_of(__doc__, rounds=10)
    parser.add_argument("--writes", type=int, default=12, help="writes of a job (default 12)")
    parser.add_argument("--rows", type=int, default=2_000_000, help="rows of each write (default 2,000,000)")
    parser.add_argument("--worker", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        case, url, writes, rows, folder = arguments.worker
        print(json.dumps(_work(case, url, int(writes), int(rows), Path(folder))))
    else:
        in_folder(arguments, _compare)


def _compare(arguments: argparse.Namespace, folder: Path) -> Results:
    results: Results = []
    with StandIn("answering") as answering, StandIn("hanging") as hanging:
        for number in range(arguments.rounds):
            # Each case is first, second, … as often as the others.
            turn = number % len(CASES)
            for case in (*CASES[turn:], *CASES[:turn]):
                url = (hanging if case == "hanging" else answering).url
                out = folder / case
                os.sync()
                figures = measured(
                    "benchmarks.tracked",
                    *(case, url, arguments.writes, arguments.rows, out),
                    errors=subprocess.DEVNULL,
                )
                results.append({"case": case, **figures})
                shutil.rmtree(out)
    print(f"{arguments.writes} writes of {arguments.rows:,} rows, the median of {arguments.rounds} rounds\n")
    print(f"{'':<10} {'job s':>8} {'stop() s':>9} {'p95':>6}")
    jobs = {}
    for case in CASES:
        medians = median(results, ("job_s", "stop_s"), case=case)
        stops = [row["stop_s"] for row in results if row["case"] == case]
        p95 = statistics.quantiles(stops, n=20, method="inclusive")[-1] if len(stops) > 1 else stops[0]
        jobs[case] = medians["job_s"]
        print(f"{case:<10} {medians['job_s']:>8.2f} {medians['stop_s']:>9.2f} {p95:>6.2f}")
    for case in ("waybill", "hanging"):
        print(f"{case} / listener: {jobs[case] / jobs['listener']:.3f} (goal: at most {RATIO_MAX})")
    print(f"p95 of Waybill's stop(): goal under {STOP_MAX_S} s")
    return results


def _work(case: str, url: str, writes: int, rows: int, folder: Path) -> dict[str, float]:
    """Run the job and return how long it and `stop()` took."""
    from waybill.spark import find_java

    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder.mkdir()
    spark = _tracked(url, folder) if case in ("waybill", "hanging") else _plain(case, url)
    source, out = folder / "source", folder / "out"
    spark.range(rows).selectExpr("id", "id % 1000 AS key").write.parquet(str(source))
    start_s = time.perf_counter()
    for number in range(writes):
        totals = spark.read.parquet(str(source)).groupBy("key").sum("id")
        totals.write.parquet(str(out / str(number)))
    job_s = time.perf_counter() - start_s
    start_s = time.perf_counter()
    spark.stop()
    return {"job_s": job_s, "stop_s": time.perf_counter() - start_s}


def _options() -> dict[str, str]:
    return {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "8"}


def _tracked(url: str, folder: Path) -> Any:  # noqa: ANN401 - a session
    import waybill.spark

    return waybill.spark.session(
        "tracked",
        master=_MASTER,
        conf=_options(),
        home=folder / "home",
        root=folder / "root",
        marquez_url=url,
        provenance_enabled=True,
    )


def _plain(case: str, url: str) -> Any:  # noqa: ANN401 - a session
    from pyspark.sql import SparkSession

    from waybill.spark import fetch_listener

    builder = SparkSession.builder.appName("tracked").master(_MASTER)
    options = _options()
    if case == "listener":
        options |= {
            "spark.driver.extraClassPath": str(fetch_listener()),
            "spark.extraListeners": "io.openlineage.spark.agent.OpenLineageSparkListener",
            "spark.openlineage.transport.type": "http",
            "spark.openlineage.transport.url": url,
            "spark.openlineage.namespace": "benchmark",
        }
    for name, value in options.items():
        builder.config(name, value)
    return builder.getOrCreate()


if __name__ == "__main__":
    main()
