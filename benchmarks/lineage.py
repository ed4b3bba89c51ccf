"""How soon a collector answers questions about the files of a root, with the keys and without them.

    python -m benchmarks.lineage                                   # one million records in 120 files
    python -m benchmarks.lineage --hours 8760 --keys-only          # a year by hours: 43,800 files
    python -m benchmarks.lineage --hours 43800 --records 2190000 --keys-only          # five years
    python -m benchmarks.lineage --records 10000 100000 1000000 10000000 --hours 1 4 24 240 --keys-only

The compacted files are made by `benchmarks.roots`, and the keys by a flush. Each question is asked over
HTTP of a fresh collector, on one connection, each time about another record; no question has bounds of time.
The first answer is the cold one: the collector has not loaded anything for it, and the kernel was asked to
forget the files, which it does unless they are in memory anyway, as in /dev/shm. CPU times are those of the
collector: *cold CPU ms* for the first answer, *CPU ms* for each after it.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import shutil
import statistics
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from benchmarks.ingest import children_of, collector, cpu_s_of
from benchmarks.measuring import Results, cpu_s, files_of, in_folder, parser_of
from benchmarks.roots import Sample, fill, flush_one

QUERY: Final = "/provenance/query"
STATS: Final = "/provenance/stats"
WARM_MAX_MS: Final = 30
COLD_MAX_MS: Final = 1_000


def main() -> None:
    """Fill roots of some sizes, and ask a fresh collector each question."""
    parser = parser_of(__doc__, rounds=1)
    parser.add_argument("--records", type=int, nargs="+", default=[1_000_000], help="default 1,000,000")
    parser.add_argument(
        "--hours",
        type=int,
        nargs="+",
        default=[24],
        help="hours they are spread over: one number, or one for each number of records (default 24)",
    )
    parser.add_argument("--asked", type=int, default=100, help="how often each is asked (default 100)")
    parser.add_argument("--keys-only", action="store_true", help="without the comparison")
    in_folder(parser.parse_args(), _measure)


def _measure(arguments: argparse.Namespace, folder: Path) -> Results:
    results: Results = []
    sizes = zip(arguments.records, itertools.cycle(arguments.hours), strict=False)
    for number, (count, hours) in enumerate(sizes):
        home = folder / str(number)
        results += _measured(arguments, home, count, hours)
        shutil.rmtree(home)
    warm = [one for one in results if one["keys"]]
    print(
        f"\nslowest with the keys: p95 {max(one['p95_ms'] for one in warm):.0f} ms (goal: {WARM_MAX_MS}), "
        f"cold {max(one['cold_ms'] for one in warm):.0f} ms (goal: {COLD_MAX_MS:,})"
    )
    return results


def _measured(arguments: argparse.Namespace, home: Path, count: int, hours: int) -> Results:
    """Fill one root, and ask every question about it."""
    before_s = cpu_s()
    some, children = fill(home, count=count, hours=hours, sampled=arguments.asked)
    filled_s, before_s = cpu_s() - before_s, cpu_s()
    flush_one(home, "last")
    keys = home / "provenance" / "keys"
    files, size_mb = files_of(home / "provenance" / "compacted")
    keys_mb = sum(path.stat().st_size for path in keys.iterdir()) / 1e6
    print(
        f"\n{count:,} records, {hours:,} hours: {files:,} files, {size_mb:.1f} MB, made in {filled_s:.1f} "
        f"CPU s; the keys: {keys_mb:.1f} MB, made in {cpu_s() - before_s:.1f} CPU s\n"
    )
    print(
        "| question | keys | cold ms | cold CPU ms | p50 ms | p95 ms | CPU ms | records |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    results: Results = []
    for has_keys in (True,) if arguments.keys_only else (True, False):
        if not has_keys:
            shutil.rmtree(keys)
        for name, paths in _questions(some, children):
            figures = _asked(home, paths)
            results.append({"records": count, "hours": hours, "question": name, "keys": has_keys, **figures})
            print(
                f"| {name} | {'yes' if has_keys else 'no'} | {figures['cold_ms']:.0f} | "
                f"{figures['cold_cpu_ms']:.0f} | "
                f"{figures['p50_ms']:.1f} | {figures['p95_ms']:.1f} | {figures['cpu_ms']:.1f} | "
                f"{figures['found']:.0f} |",
                flush=True,
            )
    return results


def _questions(some: Sample, children: Sample) -> Iterator[tuple[str, list[str]]]:
    few = some[: max(len(some) // 10, 2)]
    yield "did", [_path(QUERY, did=one["did"]) for one in some]
    yield "unknown did", [_path(QUERY, did="x" + one["did"][1:]) for one in some]
    yield "parent", [_path(QUERY, parent_did=one["parent_did"]) for one in children]
    yield "filename", [_path(QUERY, filename=one["filename"]) for one in some]
    yield (
        "annotation",
        [
            _path(QUERY, annotation_key="batchId", annotation_value=one["annotations"]["batchId"])
            for one in few
        ],
    )
    yield "newest 50", [_path(QUERY, limit=50)] * len(few)
    yield (
        "source and ERROR, newest 50",
        [_path(QUERY, data_source=one["data_source"], final_state="ERROR", limit=50) for one in few],
    )
    yield "stats", [STATS] * len(few)
    yield "stats of a source", [_path(STATS, data_source=one["data_source"]) for one in few]
    yield "sums by hour", [_path(STATS, by="hour")] * len(few)


def _path(path: str, **given: object) -> str:
    return f"{path}?{urlencode(given)}"


def _asked(home: Path, paths: list[str]) -> dict[str, float]:
    """Ask all questions of a fresh collector, the first one while nothing is in its memory."""
    _forget_files(home)
    server, address = collector(home, "--no-archive-enabled", "--runner", "none")
    taken_ms: list[float] = []
    found = 0
    try:
        with contextlib.closing(HTTPConnection(*address, timeout=600)) as connection:
            used_s = [_cpu_s(server.pid)]
            for path in paths:
                began_s = time.perf_counter()
                connection.request("GET", path)
                answer = connection.getresponse()
                content = json.loads(answer.read())
                if answer.status != 200:  # noqa: PLR2004 - OK
                    raise SystemExit(f"{path}: {answer.status} {content}")
                taken_ms.append((time.perf_counter() - began_s) * 1_000)
                used_s.append(_cpu_s(server.pid))
                found += _count(content)
    finally:
        server.terminate()
        server.wait()
    cold_ms, *warm_ms = taken_ms
    warm_ms.sort()
    return {
        "cold_ms": cold_ms,
        "cold_cpu_ms": (used_s[1] - used_s[0]) * 1_000,
        "p50_ms": statistics.median(warm_ms),
        "p95_ms": warm_ms[int(len(warm_ms) * 0.95)],
        "cpu_ms": (used_s[-1] - used_s[1]) * 1_000 / len(warm_ms),
        "found": found / len(paths),
    }


def _count(content: Any) -> int:  # noqa: ANN401 - JSON
    """How many records an answer has or counts; DeltaFi answers null where there are none."""
    if isinstance(content, dict):
        return int(content["total_records"])
    return len(content or ())


def _forget_files(home: Path) -> None:
    """Have the kernel drop what it keeps of the files of a home."""
    os.sync()
    for path in home.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def _cpu_s(pid: int) -> float:
    return cpu_s_of(pid) + sum(map(cpu_s_of, children_of(pid)))


if __name__ == "__main__":
    main()
