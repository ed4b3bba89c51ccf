"""How a program ends is noticed, whatever way it ends."""

from __future__ import annotations

import subprocess
import sys

import pytest

from waybill.spark.tracking.exit_status import ProgramFailure

PROGRAM = """
import atexit, sys
from waybill.spark.tracking import exit_status
exit_status.watch()
exit_status.watch()
atexit.register(lambda: print(repr(exit_status.failure_at_exit())))
{ending}
"""

UDF_FAILED = """[PYTHON_EXCEPTION] thrown: Traceback (most recent call last):
  File "x", line 1
    1/0
ZeroDivisionError: division by zero

Driver stacktrace:"""


def end(ending: str) -> tuple[ProgramFailure | None, int]:
    """What was noticed of a program with this ending, and its exit status."""
    program = [sys.executable, "-c", PROGRAM.format(ending=ending)]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    noticed = eval(ended.stdout, {"ProgramFailure": ProgramFailure})  # noqa: S307 - what our own program printed
    return noticed, ended.returncode


@pytest.mark.parametrize(
    ("ending", "message", "status"),
    [
        ("sys.exit(3)", "the program exited with status 3", 3),
        ("raise SystemExit(4)", "the program exited with status 4", 4),
        ("exit(5)", "the program exited with status 5", 5),
        ("raise SystemExit('no data')", "no data", 1),
        ("raise ValueError('boom')", "ValueError: boom", 1),
        ("raise KeyError", "KeyError", 1),
        (
            "try:\n  1 / 0\nexcept ArithmeticError as error:\n  raise OSError('no rate') from error",
            "OSError: no rate; caused by: ZeroDivisionError: division by zero",
            1,
        ),
        ("sys.excepthook = lambda *_: None; raise ValueError('hidden')", "ValueError: hidden", 1),
        ("try:\n  sys.exit(6)\nfinally:\n  sys.stderr.write('tidy')", "the program exited with status 6", 6),
    ],
)
def test_a_failing_end_has_its_reason(ending: str, message: str, status: int) -> None:
    noticed, got = end(ending)
    assert noticed is not None
    assert (noticed.message, noticed.cancelled, got) == (message, False, status)


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "sys.exit()",
        "sys.exit(0)",
        "raise SystemExit",
        "try:\n  sys.exit(7)\nexcept SystemExit as caught:\n  assert caught.code == 7",
        "try:\n  raise ValueError\nexcept ValueError:\n  pass",
        "import threading\nt = threading.Thread(target=lambda: sys.exit(1))\nt.start()\nt.join()",
    ],
)
def test_a_good_end_is_none(ending: str) -> None:
    assert end(ending) == (None, 0)


def test_an_interruption_is_a_cancellation() -> None:
    noticed, status = end("raise KeyboardInterrupt")
    assert noticed is not None
    assert (noticed.cancelled, status) == (True, -2 if status == -2 else 130)


@pytest.mark.parametrize("status", [130, 143])
def test_a_status_that_tells_of_a_signal_is_a_cancellation(status: int) -> None:
    failure = ProgramFailure.of_status(status)
    assert failure is not None
    assert failure.cancelled


@pytest.mark.parametrize(
    ("error", "cancelled"),
    [
        ("java.lang.InterruptedException\n\tat java.base/java.util", True),
        ("Job 3 cancelled because", True),
        ("org.apache.spark.SparkException: x\nCaused by: java.lang.InterruptedException: y", False),
    ],
)
def test_a_write_that_somebody_interrupts_is_cancelled(error: str, *, cancelled: bool) -> None:
    assert ProgramFailure.of_write(error).cancelled is cancelled


def test_what_fails_at_a_prompt_ends_nothing() -> None:
    noticed, _ = end("sys.ps1 = '>>> '; raise ValueError")
    assert noticed is None


def test_an_exit_status_reads_and_writes_as_ever() -> None:
    noticed, status = end(
        "error = SystemExit(1, 2)\nassert error.code == (1, 2)\nerror.code = 9\nassert error.code == 9\n"
        "assert SystemExit().code is None\nraise error"
    )
    assert (noticed, status) == (ProgramFailure("the program exited with status 9"), 9)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "[PATH_ALREADY_EXISTS] Path x already exists.\nmore",
            "[PATH_ALREADY_EXISTS] Path x already exists.",
        ),
        (UDF_FAILED, "ZeroDivisionError: division by zero"),
        ("cut: Traceback (most recent call last):", "cut:"),
        ("", ""),
        ("x" * 5000, "x" * 1021 + "…"),
    ],
)
def test_the_message_of_a_failure_is_the_line_that_says_most(text: str, line: str) -> None:
    assert ProgramFailure.of_write(text).message == line
