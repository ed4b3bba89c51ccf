"""How long it takes to follow files through a home: a deep journey, and wide ones in a forest.

    python -m benchmarks.journeys                  # 100 trees of 10,000 files, and a chain of 1,000

Each tree is up to 50 generations deep. Python asks for the descendants of a root, each time of another tree,
and for the ancestors of the last file of the chain; the command traces that file in a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.flush import BATCH
from benchmarks.measuring import Results, cpu_s, in_folder, parser_of
from benchmarks.records import HOUR_MS, START_MS
from waybill.lineage import Lineage
from waybill.transport import Journal, Kind, Settings, flush

_DEPTH_MAX: Final = 50
_HOURS: Final = 24


def main() -> None:
    """Fill a home, and ask."""
    parser = parser_of(__doc__, rounds=10)
    parser.add_argument("--trees", type=int, default=100, help="in the forest (default 100)")
    parser.add_argument("--files", type=int, default=10_000, help="of each tree (default 10,000)")
    parser.add_argument("--chain", type=int, default=1_000, help="generations of the chain (default 1,000)")
    in_folder(parser.parse_args(), _measure)


def _measure(arguments: argparse.Namespace, folder: Path) -> Results:
    given = {"home": folder / "home", "provenance_enabled": True}
    settings = Settings.load(given, env={}, cwd=folder)
    before_s = cpu_s()
    with contextlib.closing(Journal(settings.home)) as journal:
        records: list[dict[str, Any]] = []
        for record in _records(arguments.trees, arguments.files, arguments.chain):
            records.append(record)
            if len(records) == BATCH:
                journal.append(Kind.PROVENANCE, json.dumps(records).encode(), "")
                records = []
        journal.append(Kind.PROVENANCE, json.dumps(records).encode(), "")
    flush(settings)
    count = arguments.trees * arguments.files + arguments.chain
    print(f"{count:,} records, written and filed in {cpu_s() - before_s:.0f} CPU s\n")
    lineage = Lineage.open(settings.home)
    last = _did(arguments.trees, arguments.chain - 1)
    cases: dict[str, Callable[[int], int]] = {
        "descendants of a root": lambda at: len(lineage.descendants(_did(at % arguments.trees, 0))),
        "ancestors over the chain": lambda _: len(lineage.ancestors(last)),
        "trace of the chain, command": lambda _: _trace(settings.home, last),
    }
    print("| question | files | first ms | p50 ms | p95 ms | CPU ms |\n|---|---|---|---|---|---|")
    results: Results = []
    for name, ask in cases.items():
        taken_ms, used_s = [], cpu_s()
        for at in range(arguments.rounds + 1):
            began_s = time.perf_counter()
            files = ask(at)
            taken_ms.append((time.perf_counter() - began_s) * 1_000)
        first_ms, *warm_ms = taken_ms
        figures = {
            "files": files,
            "first_ms": first_ms,
            "p50_ms": statistics.median(warm_ms),
            "p95_ms": sorted(warm_ms)[int(len(warm_ms) * 0.95)],
            "cpu_ms": (cpu_s() - used_s) * 1_000 / len(taken_ms),
        }
        results.append({"question": name, **figures})
        print(f"| {name} | " + " | ".join(f"{value:,.0f}" for value in figures.values()) + " |", flush=True)
    return results


def _records(trees: int, files: int, chain: int) -> Iterator[dict[str, Any]]:
    chance = random.Random(7)  # noqa: S311 - it guards no secret
    for tree in range(trees):
        depths = [0]
        for number in range(files):
            parent = None
            if number:
                parent = chance.randrange(max(0, number - 200), number)
                while depths[parent] >= _DEPTH_MAX:
                    parent = chance.randrange(number)
                depths.append(depths[parent] + 1)
            yield _record(tree, number, parent, chance.randrange(_HOURS))
    for number in range(chain):
        yield _record(trees, number, number - 1 if number else None, number * _HOURS // chain)


def _record(tree: int, number: int, parent: int | None, hour: int) -> dict[str, Any]:
    ended_ms = START_MS + hour * HOUR_MS + number
    return {
        "did": _did(tree, number),
        "parentDid": None if parent is None else _did(tree, parent),
        "systemName": "edge",
        "dataSource": "sftp",
        "filename": f"{tree}-{number}.csv",
        "transforms": ["split"],
        "finalState": "COMPLETE",
        "created": ended_ms - 1_000,
        "completed": ended_ms,
    }


def _did(tree: int, number: int) -> str:
    return f"01a1fd6a-9e75-7d78-{0x8000 + tree:04x}-{number:012x}"


def _trace(home: Path, did: str) -> int:
    script = str(Path(sys.executable).parent / "waybill")
    command = [script, "trace", did, "--home", str(home), "--json"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.count(b'"did"')


if __name__ == "__main__":
    main()
