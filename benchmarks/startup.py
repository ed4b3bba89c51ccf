"""How long a command takes from start to end: for the help, for answers from a small home, and for a journey.

    python -m benchmarks.startup

The journey is of a file that was split into ten, and each of these into thousands, which are shown folded.
The rivals are Python with nothing to do, and Python that only loads pyarrow, as every reader of Parquet must.
Each measurement is a fresh process, and they alternate. *CPU s* hardly depends on the machine's other load.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks.flush import BATCH
from benchmarks.measuring import Results, cpu_s, in_folder, median, parser_of
from benchmarks.records import START_MS
from waybill.transport import Journal, Kind, Settings, Tracker, flush

_TRACE: Final = "trace"
GOALS_S: Final = {"--help": 0.25, "find": 0.6, _TRACE: 0.5}

_SPLITS: Final = 10
_COMMANDS: Final = ("--help", "--version", "find", "find --state ERROR --since 1d", "status")


def main() -> None:
    """Run the commands in turn and print the table."""
    parser = parser_of(__doc__, rounds=20)
    parser.add_argument(
        "--descendants", type=int, default=100_000, help="of the traced file (default 100,000)"
    )
    in_folder(parser.parse_args(), _compare)


def _compare(arguments: argparse.Namespace, folder: Path) -> Results:
    home = _home(folder)
    script = str(Path(sys.executable).parent / "waybill")
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "import pyarrow.parquet": [sys.executable, "-c", "import pyarrow.parquet"],
        **{
            name: [script, *name.split(), *([] if name.startswith("--") else ["--home", str(home)])]
            for name in _COMMANDS
        },
        _TRACE: [script, "trace", _did(0), "--home", str(_home_of_a_split(folder, arguments.descendants))],
    }
    results: Results = []
    for _ in range(arguments.rounds):
        results += [{"case": name, **_measured(command)} for name, command in commands.items()]
    print(f"{'':<30} {'CPU s':>6} {'wall s':>7} {'goal':>5}")
    for name in commands:
        figures = median(results, ("cpu_s", "wall_s"), case=name)
        goal = f"{GOALS_S[name]:.2f}" if name in GOALS_S else ""
        print(f"{name:<30} {figures['cpu_s']:>6.2f} {figures['wall_s']:>7.2f} {goal:>5}")
    return results


def _measured(command: list[str]) -> dict[str, float]:
    used_s, start_s = cpu_s(), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return {"wall_s": time.perf_counter() - start_s, "cpu_s": cpu_s() - used_s}


def _home(folder: Path) -> Path:
    """A home with a few files of each kind."""
    given = {"home": folder / "home", "provenance_enabled": True, "runner": "none"}
    settings = Settings.load(given, origin="the benchmark", env={}, cwd=folder)
    with Tracker(settings=settings) as tracker:
        for number in range(100):
            with tracker.file(f"{number}.csv", data_source="sftp") as file:
                if number % 10:
                    file.egress("lake")
                else:
                    file.error("no header")
    flush(settings)
    return settings.home


def _home_of_a_split(folder: Path, descendants: int) -> Path:
    """A home with the records of a file, of the ten that it was split into, and of theirs."""
    settings = Settings.load({"home": folder / "split", "provenance_enabled": True}, env={}, cwd=folder)
    records = []
    for number in range(descendants + 1):
        record = {
            "did": _did(number),
            "systemName": "edge",
            "dataSource": "sftp",
            "filename": f"{number}.csv",
            "transforms": ["split"],
            "finalState": "COMPLETE" if number > _SPLITS else "SPLIT",
            "created": START_MS + number,
            "completed": START_MS + number + 1_000,
        }
        if number:
            record["parentDid"] = _did(number % _SPLITS + 1 if number > _SPLITS else 0)
        records.append(record)
    with contextlib.closing(Journal(settings.home)) as journal:
        for at in range(0, len(records), BATCH):
            journal.append(Kind.PROVENANCE, json.dumps(records[at : at + BATCH]).encode(), "")
    flush(settings)
    return settings.home


def _did(number: int) -> str:
    return f"01a1fd6a-9e75-7d78-870f-{number:012x}"


if __name__ == "__main__":
    main()
