"""How long `waybill slis` takes, as a whole process.

    python -m benchmarks.levels                  # 100,000 datasets

Each dataset has an owner and ten columns, and each tenth a second name; a job writes it from the one before.
A CSV names all of them as the inventory, and another one expects 1,000 edges. It is measured with these and
without.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from benchmarks.measuring import Results, cpu_s, in_folder, parser_of
from waybill.transport import Journal, Kind, Settings, flush

_BATCH: Final = 1_000
_EXPECTED: Final = 1_000
_COLUMNS: Final = [{"name": f"column_{number}", "type": "string"} for number in range(10)]


def main() -> None:
    """Fill a home, and ask for its levels."""
    parser = parser_of(__doc__, rounds=5)
    parser.add_argument("--datasets", type=int, default=100_000, help="how many (default 100,000)")
    in_folder(parser.parse_args(), _measure)


def _measure(arguments: argparse.Namespace, folder: Path) -> Results:
    settings = Settings.load({"home": folder / "home", "runner": "none"}, env={}, cwd=folder)
    with contextlib.closing(Journal(settings.home)) as journal:
        events = _events(arguments.datasets)
        while some := list(itertools.islice(events, _BATCH)):
            journal.append_many((Kind.OPENLINEAGE, json.dumps(event).encode(), "") for event in some)
    flush(settings)
    names = [_name(number) for number in range(arguments.datasets)]
    known = folder / "known.csv"
    known.write_text("\n".join(["namespace,name", *(f"s3://lake,{name}" for name in names), ""]))
    edges = (f"s3://lake,{first},s3://lake,{then}" for first, then in itertools.pairwise(names[:_EXPECTED]))
    expected = folder / "sample.csv"
    expected.write_text("\n".join(["source_namespace,source,target_namespace,target", *edges, ""]))
    with_inventory = folder / "slis.yaml"
    with_inventory.write_text("inventory: {csv: [known.csv]}\nexpected: {csv: [sample.csv]}\n")
    without = folder / "without.yaml"
    without.write_text("{}\n")
    print("| levels | wall s | CPU s |\n|---|---|---|")
    return [
        _run(case, settings.home, file, arguments.rounds)
        for case, file in (("without an inventory", without), ("with an inventory", with_inventory))
    ]


def _run(case: str, home: Path, file: Path, rounds: int) -> dict[str, Any]:
    command = [str(Path(sys.executable).parent / "waybill"), "slis", "--home", str(home), "--slis", str(file)]
    walls_s, used_s = [], []
    for _ in range(rounds):
        began_s, before_s = time.perf_counter(), cpu_s()
        subprocess.run([*command, "--json"], check=False, stdout=subprocess.DEVNULL)
        walls_s.append(time.perf_counter() - began_s)
        used_s.append(cpu_s() - before_s)
    figures = {"wall_s": statistics.median(walls_s), "cpu_s": statistics.median(used_s)}
    print(f"| {case} | {figures['wall_s']:.2f} | {figures['cpu_s']:.2f} |")
    return {"case": case, **figures}


def _name(number: int) -> str:
    return f"zone-{number % 7}/table-{number}"


def _events(datasets: int) -> Iterator[dict[str, Any]]:
    now = datetime.now(UTC).isoformat()
    for number in range(datasets):
        facets: dict[str, Any] = {"schema": {"fields": _COLUMNS}, "ownership": {"owners": [{"name": "team"}]}}
        if not number % 10:
            other = {"namespace": "hive://metastore", "name": f"lake.table_{number}", "type": "TABLE"}
            facets["symlinks"] = {"identifiers": [other]}
        yield {
            "eventTime": now,
            "eventType": "COMPLETE",
            "producer": "https://example.org/benchmarks",
            "run": {"runId": f"01a1fd6a-9e75-7d78-870f-{number:012}"},
            "job": {"namespace": "etl", "name": f"job-{number}"},
            "inputs": [{"namespace": "s3://lake", "name": _name(number - 1)}] if number else [],
            "outputs": [{"namespace": "s3://lake", "name": _name(number), "facets": facets}],
        }


if __name__ == "__main__":
    main()
