"""How soon a collector answers questions about the files of a root, with the catalog and without it.

    python -m benchmarks.lineage                      # one million records in 120 files
    python -m benchmarks.lineage --hours 240          # the same records in 1,200 files

The records are flushed, so that they are in compacted files, and the catalog knows these. Each question is
asked over HTTP on one connection, each time about another record. The collector has 512 MiB for rows that it
keeps; one million take 300 MB. CPU times are those of the collector.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import statistics
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from benchmarks.flush import ANNOTATIONS, BATCH
from benchmarks.ingest import children_of, collector, cpu_s_of, record_lines
from benchmarks.measuring import Results, cpu_s, in_folder, parser_of
from waybill.transport import Journal, Kind, Settings, flush

QUERY: Final = "/provenance/query"
STATS: Final = "/provenance/stats"
SEED: Final = 7


def main() -> None:
    """Fill a root, ask a collector with the catalog, then one without."""
    parser = parser_of(__doc__, rounds=1)
    parser.add_argument("--records", type=int, default=1_000_000, help="default 1,000,000")
    parser.add_argument("--hours", type=int, default=24, help="hours they are spread over (default 24)")
    parser.add_argument("--asked", type=int, default=100, help="how often each is asked (default 100)")
    in_folder(parser.parse_args(), _measure)


def _measure(arguments: argparse.Namespace, folder: Path) -> Results:
    lines = record_lines(arguments.records, hours=arguments.hours)
    home = folder / "home"
    with contextlib.closing(Journal(home)) as journal:
        for at in range(0, len(lines), BATCH):
            journal.append(Kind.PROVENANCE, b"[" + b",".join(lines[at : at + BATCH]) + b"]", "")
    given = {"home": home, "provenance_enabled": True, "archive_enabled": False}
    settings = Settings.load({**given, "provenance_annotations_allowed": ANNOTATIONS}, env={})
    before_s = cpu_s()
    report = flush(settings)
    if report.left or report.problems:
        raise SystemExit(f"the flush left {report.left} entries: {report.problems}")
    sizes = [
        sum(path.stat().st_size for path in (home / "provenance" / name).rglob("*") if path.is_file()) / 1e6
        for name in ("compacted", "catalog")
    ]
    print(
        f"{arguments.records:,} records, flushed in {cpu_s() - before_s:.1f} CPU s: {sizes[0]:.1f} MB, and a "
        f"catalog of {sizes[1]:.1f} MB\n"
    )
    print("| question | catalog | p50 ms | p95 ms | CPU ms | records |\n|---|---|---|---|---|---|")
    results: Results = []
    choice = random.Random(SEED)  # noqa: S311 - no secret
    records = [json.loads(line) for line in choice.sample(lines, arguments.asked)]
    parents = [found for found in map(json.loads, lines) if "parentDid" in found]
    for has_catalog in (True, False):
        if not has_catalog:
            shutil.rmtree(home / "provenance" / "catalog")
        switch = "--catalog-enabled" if has_catalog else "--no-catalog-enabled"
        server, address = collector(home, "--no-archive-enabled", "--query-cache-bytes", "512MiB", switch)
        try:
            for name, paths in _questions(records, choice.sample(parents, arguments.asked)):
                figures = {"question": name, "catalog": has_catalog, **_asked(server.pid, address, paths)}
                results.append(figures)
                print(
                    f"| {name} | {'yes' if has_catalog else 'no'} | {figures['p50_ms']:.1f} | "
                    f"{figures['p95_ms']:.1f} | {figures['cpu_ms']:.1f} | {figures['records']:.0f} |",
                    flush=True,
                )
        finally:
            server.terminate()
            server.wait()
    return results


def _questions(
    records: list[dict[str, Any]], children: list[dict[str, Any]]
) -> Iterator[tuple[str, list[str]]]:
    few = max(len(records) // 10, 1)
    yield "did", [_path(QUERY, did=one["did"]) for one in records]
    yield "unknown did", [_path(QUERY, did="x" + one["did"][1:]) for one in records]
    yield "parent", [_path(QUERY, parent_did=one["parentDid"]) for one in children]
    yield "filename", [_path(QUERY, filename=one["filename"]) for one in records]
    annotated = [
        _path(QUERY, annotation_key="batchId", annotation_value=one["annotations"]["batchId"])
        for one in records
    ]
    yield "annotation", annotated[:few]
    yield "newest 50", [_path(QUERY, limit=50)] * few
    sources = [_path(QUERY, data_source=one["dataSource"], final_state="ERROR", limit=50) for one in records]
    yield "source and ERROR, newest 50", sources[:few]
    yield "stats", [STATS] * few
    yield "stats of a source", [_path(STATS, data_source=one["dataSource"]) for one in records][:few]


def _path(path: str, **given: object) -> str:
    return f"{path}?{urlencode(given)}"


def _asked(pid: int, address: tuple[str, int], paths: list[str]) -> dict[str, float]:
    """Ask all questions, after the first one once more."""
    connection = HTTPConnection(*address, timeout=120)
    taken_ms, found = [], 0
    with contextlib.closing(connection):
        for number, path in enumerate([paths[0], *paths]):
            if number == 1:
                before_s = _cpu_s(pid)
            began_s = time.perf_counter()
            connection.request("GET", path)
            answer = connection.getresponse()
            content = json.loads(answer.read())
            if answer.status != 200:  # noqa: PLR2004 - OK
                raise SystemExit(f"{path}: {answer.status} {content}")
            taken_ms.append((time.perf_counter() - began_s) * 1_000)
            # DeltaFi answers null where there are none.
            found += content["total_records"] if isinstance(content, dict) else len(content or ())
    taken_ms = sorted(taken_ms[1:])
    return {
        "p50_ms": statistics.median(taken_ms),
        "p95_ms": taken_ms[int(len(taken_ms) * 0.95)],
        "cpu_ms": (_cpu_s(pid) - before_s) * 1_000 / len(paths),
        "records": found / (len(paths) + 1),
    }


def _cpu_s(pid: int) -> float:
    return cpu_s_of(pid) + sum(map(cpu_s_of, children_of(pid)))


if __name__ == "__main__":
    main()
