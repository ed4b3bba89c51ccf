"""Looks for seeds that fail: runs the random tests again and again, each time with a new seed."""

from __future__ import annotations

import secrets
import subprocess
import sys
import time
from collections.abc import Iterator

MINUTE_S = 60
TEST_MAX_S = 1200
"""Higher than in `make test`, because this may run beside other work."""
ENDS_ORDERLY = {0, 1}
"""How pytest ends if all tests passed, and if some failed or the time was up."""
TO_REPEAT = (".venv/bin/python -m pytest", "@reproduce_failure")


def run_round(seconds: float) -> Iterator[str]:
    """Run the tests with a new seed, pass their output on, and yield the lines that repeat failures."""
    words = [
        *(sys.executable, "-m", "pytest", "-q", "-m", "random", f"--seed={secrets.randbits(32)}"),
        *(f"--session-timeout={seconds}", f"--timeout={TEST_MAX_S}"),
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            if line.startswith(TO_REPEAT):
                yield line.strip()
    if process.returncode not in ENDS_ORDERLY:
        yield f"pytest ended with {process.returncode}"


def explore(minutes: float) -> list[str]:
    """Run rounds until the time is up, and return what repeats their failures."""
    ends_s = time.monotonic() + minutes * MINUTE_S
    failures: list[str] = []
    while (seconds := ends_s - time.monotonic()) > 0:
        failures += run_round(seconds)
    return failures


if __name__ == "__main__":
    failures = explore(float(sys.argv[1]))
    sys.stdout.write("\n".join(["", *(failures or ["No seed failed."]), ""]))
    sys.exit(bool(failures))
