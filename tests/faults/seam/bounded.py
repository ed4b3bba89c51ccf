"""The memory of a runner, which docs/operations.md promises to bound."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec

MIB: Final = 2**20
RUNNER_BYTES: Final = 1280 * MIB
"""The limit that docs/operations.md promises."""

_RUNNER: Final = """
import sys
from pathlib import Path

import msgspec
from seam.homes import settings_in
from waybill.transport.runner import flush

report = flush(settings_in(Path(sys.argv[1])))
assert not report.problems and not report.left, report
# The peak that `getrusage` tells may be the parent's, from before this program was executed.
lines = Path("/proc/self/status").read_text().splitlines()
peak_kib = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
print(msgspec.json.encode([report.poison, peak_kib * 1024]).decode())
"""


class Flushed(msgspec.Struct, array_like=True):
    """By projection, how many entries a flush set aside, and how much memory it used."""

    poison: dict[str, int]
    peak_bytes: int


def flush_and_measure(folder: Path) -> Flushed:
    """Flush the home of `settings_in` this folder, in a process of its own.

    Only memory is measured. Allocators reserve addresses too, by chance more or fewer, which take no memory.
    """
    command = [sys.executable, "-c", _RUNNER, str(folder)]
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # DuckDB takes a program given by `-c` for an interactive one, and shows the progress of a long query.
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Flushed)
