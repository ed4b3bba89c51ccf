"""Runs what is too long for each change, part by part, and writes one report.

    python tests/nightly.py 120    # minutes for all parts together

Each part is a target of `make` and has its share of the time. The next part runs whatever became of the last.
The exit status is 0 only if each part passed, whole.
"""

from __future__ import annotations

import collections
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

REPORT = Path("dist/nightly.md")
MINUTE_S = 60
GRACE_S = 300
"""For setting up, and for the test that runs when a part's time is up; then the part is interrupted."""
ENDS_WITHIN_S = 60
OF_MAKE = {"MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "ARGS", "MINUTES"}
"""What `make nightly` would hand on to the parts."""

TESTS_MAX = "ARGS=--session-timeout={seconds}"
TESTS_MAX_ON_BOTH_CORES = f"{TESTS_MAX} --numprocesses=2 --dist=loadfile"
PARTS = {
    "exhaustive": (20, "EXHAUSTIVE_BOUND_S={seconds}"),
    "test-spark-truth-35": (9, TESTS_MAX),
    "test-spark-truth-40": (9, TESTS_MAX),
    "test-spark-truth-newest": (15, TESTS_MAX),
    "test-ecosystem": (8, TESTS_MAX),
    "walks": (8, TESTS_MAX),
    "sql-oracle": (4, TESTS_MAX),
    "test-lowest": (15, TESTS_MAX_ON_BOTH_CORES),
    "storm": (6, "STORM_S={seconds}"),
    "explore": (6, "MINUTES={minutes}"),
}
"""Each part's share of the time, in hundredths, and how its target is told of its bound."""

SELECTED = re.compile(r"^collected (\d+) items?(?:.*/ (\d+) selected)?|^\d+ workers? \[(\d+) items?\]")
SKIPPED = re.compile(r"^SKIPPED \[(\d+)\] \S+ (.*)")
ENDED = re.compile(r"^=+ (?:.*, )?(?:\d+ \w+).* in [\d.]+s")
TIME_UP = "!! session-timeout: "
COUNTED = re.compile(r"(\d+) (passed|failed|skipped|xfailed|xpassed|errors?)\b")


class Part(NamedTuple):
    """What became of a part."""

    name: str
    result: str
    minutes: float
    not_run: list[str]


def run_part(name: str, minutes: float, bound: str) -> Part:
    """Run a target of `make`, pass its output on, and interrupt it when its time is up."""
    seconds = minutes * MINUTE_S
    words = ["make", name, bound.format(seconds=int(seconds), minutes=minutes)]
    sys.stdout.write(f"\n== {' '.join(words)}\n")
    sys.stdout.flush()
    log = REPORT.with_name(f"nightly-{name}.log")
    begun_s = time.monotonic()
    own = {variable: text for variable, text in os.environ.items() if variable not in OF_MAKE}
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            words, stdout=output, stderr=subprocess.STDOUT, env=own, start_new_session=True
        )
        is_cut_short = not _ends_within(process, seconds + GRACE_S)
        if is_cut_short:
            os.killpg(process.pid, signal.SIGINT)
            if not _ends_within(process, ENDS_WITHIN_S):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    sys.stdout.write("\n".join([*lines[-20:], ""]))
    skipped, left = _read_what_was_not_run(lines)
    not_run = [f"{count} tests: {reason}" for reason, count in sorted(skipped.items())]
    if process.returncode == 0:
        return Part(name, "passed", _minutes_since(begun_s), not_run)
    if left:
        not_run.insert(0, f"{left} tests: no time was left")
    # Time may be up in the last test, which then leaves none.
    is_late = is_cut_short or bool(left) or any(TIME_UP in line for line in lines)
    has_failed = any(line.startswith(("FAILED ", "ERROR ")) for line in lines) or not is_late
    result = f"failed, see {log.name}" if has_failed else "cut short"
    return Part(name, result, _minutes_since(begun_s), not_run)


def _minutes_since(begun_s: float) -> float:
    return (time.monotonic() - begun_s) / MINUTE_S


def _ends_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _read_what_was_not_run(lines: list[str]) -> tuple[collections.Counter[str], int]:
    """Why tests were skipped, and how many had not begun when their run of pytest ended."""
    skipped: collections.Counter[str] = collections.Counter()
    selected = left = 0
    for line in lines:
        if found := SELECTED.match(line):
            selected = int(next(filter(None, reversed(found.groups())), 0))
        elif ENDED.match(line):
            left += max(selected - sum(int(count) for count, _ in COUNTED.findall(line)), 0)
            selected = 0
        elif found := SKIPPED.match(line):
            skipped[found[2]] += int(found[1])
    return skipped, left + selected


def report_of(parts: list[Part]) -> str:
    """The report, as a table of Markdown."""
    rows = [
        f"| {part.name} | {part.result} | {part.minutes:.1f} | {'; '.join(part.not_run) or 'nothing'} |"
        for part in parts
    ]
    heads = ["| part | result | minutes | what was not run |", "|---|---|---|---|"]
    return "\n".join(["# Nightly", "", *heads, *(row.replace("\n", " ") for row in rows), ""])


def run_nightly(minutes: float, chosen: list[str]) -> int:
    """Run these parts, or all, and write the report anew after each; return the exit status."""
    REPORT.parent.mkdir(exist_ok=True)
    done: list[Part] = []
    for name in chosen or PARTS:
        share, bound = PARTS[name]
        done.append(run_part(name, minutes * share / 100, bound))
        REPORT.write_text(report_of(done), encoding="utf-8")
    sys.stdout.write(f"\n{report_of(done)}")
    return int(any(part.result != "passed" for part in done))


if __name__ == "__main__":
    sys.exit(run_nightly(float(sys.argv[1]), sys.argv[2:]))
