"""Runs pytest; a test that fails is run once more, alone, and only a failure that repeats decides.

    python tests/deciding.py --numprocesses=3 tests/cli    # any of pytest's own arguments

The last lines say which tests were unstable, which `unstable.md` has until they are mended, and what was not
tested because a program is missing. A run that was cut short, by its time limit or by a signal, has failed,
whatever its tests did.
"""

from __future__ import annotations

import collections
import subprocess
import sys

import pytest

RERUN_MAX = 20
"""So many failures are no accident, so none of them is run again."""


class _Outcomes:
    """What one run of pytest tells: the tests that failed, and the reasons why others were skipped."""

    def __init__(self) -> None:
        self.failed: dict[str, None] = {}
        self.skipped: collections.Counter[str] = collections.Counter()
        self.is_cut_short = False
        self.seed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed[report.nodeid] = None
        elif report.skipped and isinstance(report.longrepr, tuple):
            self.skipped[report.longrepr[2].removeprefix("Skipped: ")] += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.is_cut_short |= report.failed

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.is_cut_short |= bool(session.shouldfail or session.shouldstop)
        self.seed = str(session.config.getoption("--seed", "none"))


def decide(arguments: list[str]) -> int:
    """Run the tests, then those that failed once more; return the exit status that counts."""
    outcomes = _Outcomes()
    status = int(pytest.main(arguments, plugins=[outcomes]))
    unstable: list[str] = []
    if status == pytest.ExitCode.TESTS_FAILED and not outcomes.is_cut_short:
        if 0 < len(outcomes.failed) <= RERUN_MAX:
            unstable = [test for test in outcomes.failed if _passes_alone(test, arguments)]
        if len(unstable) == len(outcomes.failed) > 0:
            status = 0
    not_tested = [f"{count:>5}  {reason}" for reason, count in sorted(outcomes.skipped.items())]
    with_seed = [f"{test}  seed {outcomes.seed}" for test in unstable]
    _print_table("not tested", not_tested)
    _print_table("unstable: failed once, and passed alone (see tests/unstable.md)", with_seed)
    _print_table("failed", [] if status == 0 else [test for test in outcomes.failed if test not in unstable])
    return status


def _passes_alone(test: str, arguments: list[str]) -> bool:
    """Whether a test passes in a process of its own, with the same seed."""
    seeds = [argument for argument in arguments if argument.startswith("--seed=")]
    words = [sys.executable, "-m", "pytest", "-m", "", *seeds, test]
    return subprocess.run(words, check=False).returncode == 0


def _print_table(title: str, lines: list[str]) -> None:
    if lines:
        sys.stdout.write("\n".join(["", f"== {title}", *lines, ""]))


if __name__ == "__main__":
    sys.exit(decide(sys.argv[1:]))
