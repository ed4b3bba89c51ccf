"""What `waybill run` costs a program, what a heartbeat costs, and how long many packages take to check.

    python -m benchmarks.packages

The program is `true`. Its run is measured in a home that is there, beside the program alone; no runner is
started, as if one were running. Heartbeats are kept in a home on the measured disk.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks.measuring import Results, in_folder, parser_of
from waybill.pipelines import RunReport, read_package
from waybill.transport import Journal, Settings
from waybill.transport.home import Home

_PACKAGES: Final = 100
_HEARTBEATS: Final = 1_000
_WAYBILL: Final = Path(sys.executable).parent / "waybill"


def main() -> None:
    """Measure."""
    in_folder(parser_of(__doc__, rounds=20).parse_args(), _measure)


def _measure(arguments: argparse.Namespace, folder: Path) -> Results:
    home = folder / "home"
    Journal(home).close()
    one = _write(folder / "one", "one", [], [])
    for number in range(_PACKAGES):
        _write(folder / "many" / str(number), f"p{number}", [f"t{number}"], [f"t{number + 1}"])
    cases: dict[str, list[str | Path]] = {
        "true": ["true"],
        "waybill run true": [_WAYBILL, "run", one, "--home", home],
        f"waybill package validate, {_PACKAGES} packages": [_WAYBILL, "package", "validate", folder / "many"],
    }
    results = [_time(name, command, arguments.rounds) for name, command in cases.items()]
    results.append(_beat(one, home))
    for result in results:
        print("  ".join(f"{key} {value}" for key, value in result.items()))
    return results


def _time(name: str, command: list[str | Path], rounds: int) -> dict[str, object]:
    taken_ms = []
    for _ in range(rounds):
        began_s = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "WAYBILL_RUNNER": "none"})
        taken_ms.append((time.perf_counter() - began_s) * 1_000)
    return {"case": name, "p50_ms": round(sorted(taken_ms)[rounds // 2]), "worst_ms": round(max(taken_ms))}


def _beat(package: Path, home: Path) -> dict[str, object]:
    settings = Settings.load({"home": home, "runner": "none"}, env={}, cwd=home)
    report = RunReport(read_package(package), environment={}, fingerprint_max_bytes=1)
    kept = Home.open(settings)
    began_s, used_s = time.perf_counter(), time.process_time()
    for _ in range(_HEARTBEATS):
        kept.emit(report.heartbeat())
    wall_ms, cpu_ms = (time.perf_counter() - began_s), (time.process_time() - used_s)
    kept.close()
    return {"case": "heartbeat", "wall_ms": round(wall_ms, 2), "cpu_ms": round(cpu_ms, 2)}


def _write(folder: Path, name: str, reads: list[str], writes: list[str]) -> Path:
    folder.mkdir(parents=True)
    sides = {"inputs": reads, "outputs": writes}
    manifest = {
        "metadata": {"name": name},
        "runtime": {"command": ["true"]},
        **{
            side: [{"name": f"{side}.{one}", "binding": {"namespace": "db", "dataset": one}} for one in names]
            for side, names in sides.items()
        },
    }
    (folder / "dk.yaml").write_text(json.dumps(manifest))
    return folder


if __name__ == "__main__":
    main()
