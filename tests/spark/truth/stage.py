"""What a job that has ended left: files, statuses, and Waybill's records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyspark

if TYPE_CHECKING:
    from conftest import Ran

    from waybill.facets import FinalState, ProvenanceRecord

CTRL_C_BREAKS_PYSPARK: Final = pyspark.__version__.startswith(("3.5.", "4.0."))
"""Whether PySpark's own handler of SIGINT calls py4j in the middle of a call, so that the program fails."""

QUICK_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options for a JVM that lives for seconds, and would spend most of them on code that it never uses."""

PREAMBLE = """
import json
ENDED = {}

def attempt(name, work):
    try:
        ENDED[name] = {"value": str(work()), "error": None}
    except Exception as error:
        ENDED[name] = {"value": None, "error": f"{type(error).__name__}: {error}"}

def tell():
    print(json.dumps(ENDED))

"""


BEHIND = """
import threading
from waybill.spark.tracking import application, failure_watch

failure_watch.SETTLE_TIMEOUT_S = 0.2
finish, hear = failure_watch.FailureWatch.finish, application.Application._hear
FALLS_BEHIND, CATCHES_UP, IS_BEHIND = threading.Event(), threading.Event(), []

def hear_late(self, body):
    if FALLS_BEHIND.is_set():
        CATCHES_UP.wait(60)
    hear(self, body)

def finish_first(self):
    finish(self)
    self._thread.join(60)  # of so short a time, a busy machine leaves it nothing
    IS_BEHIND.append(self._behind is not None)
    CATCHES_UP.set()

application.Application._hear = hear_late
failure_watch.FailureWatch.finish = finish_first
"""
"""A program that begins with this can hold the listener's events until it stops, with `FALLS_BEHIND`."""


@dataclass(frozen=True)
class Scene:
    """A program that has ended, in which things ended each under a name of its own.

    Attributes:
        ran: the program.
        ended: for each name the text of the value that came back, and the error that was raised, if any.
    """

    ran: Ran
    ended: Mapping[str, Mapping[str, str | None]]

    def error(self, name: str) -> str | None:
        """The exception that was raised under a name, as its type and text."""
        return self.ended[name]["error"]

    def is_committed(self, name: str) -> bool:
        """Whether Spark finished a write to this folder of `out`."""
        return (self.ran.out / name / "_SUCCESS").exists()

    def has_rows(self, name: str) -> bool:
        """Whether a folder of `out` has any file with data."""
        return any(path.name.startswith("part-") for path in (self.ran.out / name).rglob("*"))

    def states(self, name: str) -> list[FinalState]:
        """The final states of what was written to a folder of `out`."""
        return [record.final_state for record in self.ran.written(name)]

    def record(self, name: str) -> ProvenanceRecord:
        """The only record of a folder of `out`."""
        (record,) = self.ran.written(name)
        return record

    def cause(self, name: str) -> str:
        """The cause in the only record of a folder of `out`."""
        return (self.record(name).annotations or {}).get("errorCause", "")


Play = Callable[..., Scene]
