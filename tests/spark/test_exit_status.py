"""How a program ends is noticed, whatever way it ends."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from waybill.spark.tracking.exit_status import ProgramFailure

PROGRAM = """
import atexit, os, sys
from waybill.spark.tracking import exit_status
exit_status.watch()
exit_status.watch()
for ending in {endings!r}:
    if (child := os.fork()) == 0:
        atexit.register(lambda: print(repr(exit_status.failure_at_exit()), flush=True))
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
if child == 0:
    exec(ending)
"""
"""Ends in each way, in a fork for each; prints what was noticed, and the status."""

FAILING = {
    "sys.exit(3)": ("the program exited with status 3", 3),
    "raise SystemExit(4)": ("the program exited with status 4", 4),
    "exit(5)": ("the program exited with status 5", 5),
    "raise SystemExit('no data')": ("no data", 1),
    "raise ValueError('boom')": ("ValueError: boom", 1),
    "raise KeyError": ("KeyError", 1),
    "try:\n  1 / 0\nexcept ArithmeticError as error:\n  raise OSError('no rate') from error": (
        "OSError: no rate; caused by: ZeroDivisionError: division by zero",
        1,
    ),
    "class MyFault(Exception): pass\nraise MyFault('boom')": ("MyFault: boom", 1),
    "from concurrent.futures import ProcessPoolExecutor\n"
    "try:\n  ProcessPoolExecutor(1).submit(int, 'x').result()\n"
    "except ValueError as error:\n  raise OSError('daily load failed') from error": (
        "OSError: daily load failed; caused by: ValueError: invalid literal for int() with base 10: 'x'",
        1,
    ),
    "sys.excepthook = lambda *_: None; raise ValueError('hidden')": ("ValueError: hidden", 1),
    "try:\n  sys.exit(6)\nfinally:\n  sys.stderr.write('tidy')": ("the program exited with status 6", 6),
    # Their texts cannot be had.
    "class E:\n  def __str__(self): raise ValueError\nsys.exit(E())": ("the program exited with status 1", 1),
    "class E(Exception):\n  def __str__(self): raise ValueError\nraise E": ("E", 1),
    # An exit status reads and writes as ever.
    "error = SystemExit(1, 2)\nassert error.code == (1, 2)\nerror.code = 9\nassert error.code == 9\n"
    "assert SystemExit().code is None\nraise error": ("the program exited with status 9", 9),
}
GOOD = [
    "",
    "sys.exit()",
    "sys.exit(0)",
    "raise SystemExit",
    "try:\n  sys.exit(7)\nexcept SystemExit as caught:\n  assert caught.code == 7",
    "try:\n  raise ValueError\nexcept ValueError:\n  pass",
    "import threading\nt = threading.Thread(target=lambda: sys.exit(1))\nt.start()\nt.join()",
]
INTERRUPTED = "raise KeyboardInterrupt"
AT_PROMPT = "sys.ps1 = '>>> '; raise ValueError"
IN_CELL = "import builtins; builtins.get_ipython = None; raise ValueError"
"""As a kernel of IPython's ends, in one of whose cells an exception was raised."""


Ended = dict[str, tuple[ProgramFailure | None, int]]


@pytest.fixture(scope="module")
def ended() -> Ended:
    """Of each ending, what was noticed of a program with it, and its exit status."""
    endings = [*FAILING, *GOOD, INTERRUPTED, AT_PROMPT, IN_CELL]
    program = [sys.executable, "-c", PROGRAM.format(endings=endings)]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True)
    said = [eval(line, {"ProgramFailure": ProgramFailure}) for line in ran.stdout.splitlines()]  # noqa: S307 - what our own program printed
    return dict(zip(endings, zip(said[::2], said[1::2], strict=True), strict=True))


@pytest.mark.parametrize("ending", FAILING)
def test_a_failing_end_has_its_reason(ended: Ended, ending: str) -> None:
    noticed, status = ended[ending]
    assert noticed is not None
    assert (noticed.message, status, noticed.cancelled) == (*FAILING[ending], False)


def test_a_good_end_is_none_and_neither_is_what_fails_at_a_prompt_or_in_a_cell(ended: Ended) -> None:
    assert {ending: ended[ending] for ending in GOOD} == dict.fromkeys(GOOD, (None, 0))
    assert ended[AT_PROMPT][0] is None
    assert ended[IN_CELL][0] is None


def test_an_interruption_is_a_cancellation(ended: Ended) -> None:
    noticed, status = ended[INTERRUPTED]
    assert noticed is not None
    assert (noticed.cancelled, status) == (True, -signal.SIGINT)


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
