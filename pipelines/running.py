"""Running a package: its program's attempts, as one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.transport.errors import AdmissionError, JournalError

from .child import TIMED_OUT, Child
from .yaml_files import duration_s

if TYPE_CHECKING:
    from .child import Ended
    from .reporting import RunReport

HEARTBEAT_S: Final = 60.0
"""How often a run tells that it goes on, unless told otherwise."""


class RunOutcome(msgspec.Struct, frozen=True):
    """How a run of a package ended.

    Attributes:
        state: COMPLETE, FAIL or ABORT.
        code: the exit code to end with: the program's own; 124 after a timeout.
        attempts: how often the program was run.
        reason: why it failed or was stopped; empty: it did not.
        run: the run's id.
        unkept: how many events could not be kept.
    """

    state: str
    code: int
    attempts: int
    reason: str
    run: str
    unkept: int


def run_package(
    report: RunReport,
    emit: Callable[[bytes], None],
    environment: Mapping[str, str],
    *,
    say: Callable[[str], None],
    heartbeat_s: float = HEARTBEAT_S,
) -> RunOutcome:
    """Run a package's program until an attempt succeeds, is stopped, or none is left.

    An event that cannot be kept never stops the program.

    Args:
        report: makes the run's events.
        emit: keeps an event.
        environment: the program's variables.
        say: tells the user what happens between the attempts.
        heartbeat_s: how often the run tells that it goes on; 0: never.
    """
    runtime, unkept = report.package.manifest.runtime, 0

    def tell(body: bytes) -> None:
        nonlocal unkept
        try:
            emit(body)
        except (AdmissionError, JournalError) as error:
            unkept += 1
            say(f"an event of the run is not kept: {error}")

    timeout_s, attempts = duration_s(runtime.timeout), 1 + runtime.retries
    child = Child(
        report.command,
        folder=report.package.folder,
        environment={**environment, **report.below.environment(environment)},
        grace_s=duration_s(runtime.grace),
    )
    with child:
        for attempt in range(1, attempts + 1):
            tell(report.event("START"))
            ended = child.run(
                timeout_s=timeout_s, beat=lambda: tell(report.heartbeat()), beat_every_s=heartbeat_s
            )
            reason = _reason_of(ended, child.stopped)
            if attempts > 1 and reason:
                reason = f"attempt {attempt} of {attempts}: {reason}"
            state = "ABORT" if child.stopped else "FAIL" if ended.code else "COMPLETE"
            tell(report.event(state, reason, is_end=True))
            if state != "FAIL":
                break
            if attempt < attempts:
                say(f"{first_line(reason)}; it is run again")
    code = TIMED_OUT if child.timed_out else ended.code
    return RunOutcome(state, code, attempt, reason, report.run.run, unkept)


def first_line(text: str) -> str:
    """The first line of a text."""
    return text.partition("\n")[0]


def _reason_of(ended: Ended, stopped: str) -> str:
    """Why a program ended as it did; empty: it succeeded."""
    if not stopped and not ended.code:
        return ""
    why, (*more, last) = stopped or f"exit code {ended.code}", ended.tail.split("\n")
    if not last:
        return why
    return f"{why}: {last}\n{ended.tail}" if more else f"{why}: {last}"
