"""How long provenance files take to be rebuilt from JSON lines: our rebuild beside DuckDB.

    python -m benchmarks.rebuild                       # one million terminal events with the facet, 24 hours
    python -m benchmarks.rebuild --events 10000000     # the memory of a large one

Both read the same file, take the records out of the facets, merge what came twice, sort, and write one zstd
file per system and hour; what DuckDB runs is benchmarks/rebuild.sql. Ours also looks for events without the
facet, makes every file durable, and could go on after a crash. Each measurement is a fresh process with all
its workers counted; the two take turns, and the median of the rounds is shown. The rows of both are compared.
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
import threading
import time
from pathlib import Path
from string import Template
from typing import Any, Final

CASES: Final = ("waybill", "duckdb")
BATCH: Final = 20_000
SQL: Final = Path(__file__).with_suffix(".sql")
RATIO_MAX: Final = 1.0
ANNOTATIONS: Final = frozenset({"batchId", "customer", "priority", "region", "resent"})
EVENT_TYPES: Final = {"ERROR": "FAIL", "CANCELLED": "ABORT"}


def main() -> None:
    """Make the file, let both rebuild from it in turns, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=1_000_000, help="different events (default 1,000,000)")
    parser.add_argument("--hours", type=int, default=24, help="hours they are spread over (default 24)")
    parser.add_argument("--repeats", type=float, default=0.01, help="share that comes twice (default 0.01)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of turns (default 3)")
    parser.add_argument("--seed", type=int, default=7, help="of the records (default 7)")
    parser.add_argument("--folder", type=Path, help="the disk that is measured (default: a temporary folder)")
    parser.add_argument("--json", type=Path, help="write every measurement there")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        case, lines, out = arguments.worker
        print(json.dumps(_work(case, Path(lines), Path(out))))
        return
    folder = Path(tempfile.mkdtemp(prefix="waybill-bench-", dir=arguments.folder))
    try:
        results = _compare(arguments, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


def _compare(arguments: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    lines = folder / "events.jsonl"
    count = _write_lines(arguments, lines)
    print(f"{count:,} events, {arguments.hours} hours, {lines.stat().st_size / 1e6:.0f} MB of JSON lines\n")
    results = []
    for round_ in range(arguments.rounds):
        for case in CASES:
            out = folder / f"{round_}-{case}"
            os.sync()
            results.append(_measured(case, lines, out))
            if round_:
                shutil.rmtree(out)
    _check_same(folder, arguments.events)
    print(f"{'':<10} {'wall s':>8} {'CPU s':>8} {'peak MB':>8} {'MB':>8}")
    median = {case: _median(results, case) for case in CASES}
    for case, row in median.items():
        print(
            f"{case:<10} {row['wall_s']:>8.2f} {row['cpu_s']:>8.2f} {row['peak_mb']:>8.0f} "
            f"{row['size_mb']:>8.1f}"
        )
    ratio = median["waybill"]["wall_s"] / median["duckdb"]["wall_s"]
    print(f"\nwaybill / duckdb, wall: {ratio:.2f} (to reach: at most {RATIO_MAX})")
    return results


def _write_lines(arguments: argparse.Namespace, path: Path) -> int:
    """Terminal events as the Tracker emits them, one a line; how many."""
    from benchmarks.records import records
    from waybill.facets.arrow import from_table

    table = records(
        arguments.events, hours=arguments.hours, systems=5, repeats=arguments.repeats, seed=arguments.seed
    )
    with path.open("wb") as file:
        for start in range(0, table.num_rows, BATCH):
            file.writelines(_line(record) for record in from_table(table.slice(start, BATCH)))
    return table.num_rows


def _line(record: Any) -> bytes:  # noqa: ANN401 - a provenance record
    completed = _instant(record.completed)
    facet = {
        "_producer": "https://github.com/waybill/waybill",
        "_schemaURL": "https://example.org/WaybillDeltaFileRunFacet.json",
        "did": record.did,
        "systemName": record.system_name,
        "dataSource": record.data_source,
        "filename": record.filename,
        "transforms": record.transforms,
        "finalState": record.final_state,
        "created": _instant(record.created),
        "completed": completed,
        "annotations": record.annotations,
    }
    if record.parent_did:
        facet["parentDid"] = record.parent_did
    if record.data_sink:
        facet["dataSink"] = record.data_sink
    event = {
        "eventTime": completed,
        "eventType": EVENT_TYPES.get(record.final_state, "COMPLETE"),
        "producer": "https://github.com/waybill/waybill",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": record.did, "facets": {"waybill_deltaFile": facet}},
        "job": {"namespace": record.system_name, "name": record.data_source, "facets": {}},
        "inputs": [{"namespace": record.system_name, "name": record.data_source}],
        "outputs": [{"namespace": record.system_name, "name": record.data_sink}] if record.data_sink else [],
    }
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def _instant(epoch_ms: int) -> str:
    seconds, milliseconds = divmod(epoch_ms, 1_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{milliseconds:03}Z"


def _work(case: str, lines: Path, out: Path) -> dict[str, float]:
    """Rebuild and tell what it took, child processes included; imports of this process do not count."""
    do = {"waybill": _waybill, "duckdb": _duckdb}[case](lines, out)
    peak = _Peak()
    before, start_s = _cpu_s(), time.perf_counter()
    do()
    wall_s = time.perf_counter() - start_s
    return {"wall_s": wall_s, "cpu_s": _cpu_s() - before, "peak_mb": peak.stop()}


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


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


def _waybill(lines: Path, out: Path) -> Any:  # noqa: ANN401 - what is to be timed
    from waybill.exporter import Wanted, rebuild
    from waybill.exporter.sources import LinesSource

    wanted = Wanted(system_name="benchmark", annotations_allowed=ANNOTATIONS)
    return lambda: rebuild(LinesSource((lines,)), out, wanted, workers=os.cpu_count() or 1)


def _duckdb(lines: Path, out: Path) -> Any:  # noqa: ANN401 - what is to be timed
    import duckdb

    out.mkdir(parents=True)
    sql = Template(SQL.read_text()).substitute(lines=lines, out=out / "provenance")
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return lambda: connection.execute(sql)


def _measured(case: str, lines: Path, out: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.rebuild", "--worker", case, str(lines), str(out)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    size_mb = sum(path.stat().st_size for path in out.rglob("*.parquet")) / 1e6
    return {"case": case, **json.loads(output.splitlines()[-1]), "size_mb": size_mb}


def _median(results: list[dict[str, Any]], case: str) -> dict[str, float]:
    rows = [result for result in results if result["case"] == case]
    return {
        name: statistics.median(row[name] for row in rows)
        for name in ("wall_s", "cpu_s", "peak_mb", "size_mb")
    }


def _check_same(folder: Path, records: int) -> None:
    """The first round's files of both hold the same rows."""
    import duckdb

    connection = duckdb.connect()
    ours, theirs = (
        connection.read_parquet(f"{folder}/0-{case}/provenance/**/*.parquet", hive_partitioning=False)
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
