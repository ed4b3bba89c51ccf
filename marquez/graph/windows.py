"""What became of the files that passed one job of the graph within a minute: a run of that job.

A run for each file and transform would be too many for Marquez, and a job without any run is grey on its
page. So the files of a minute are one run: FAIL where one of them failed there, else COMPLETE. It lasts from
when the first of them began the job until the last left it.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.facets import PRODUCER, FinalState

if TYPE_CHECKING:
    from waybill.facets.flows import FlowNode

WINDOW_MS: Final = 60_000
"""The most time that a run covers, while the backend keeps up."""

CAUSE_CHARS_MAX: Final = 1_000


class Window(msgspec.Struct):
    """What became of files at one job.

    Attributes:
        seq: the first of their entries.
        first_ms: when the first entry was accepted, epoch milliseconds.
        last_ms: when the last one was.
        began_ms: when the first file began the job; 0: not known.
        ended_ms: when the last one left it.
        passed: how many files went on to the next job.
        states: how many paths ended here, by how they did.
        cause: why the first one failed.
    """

    seq: int
    first_ms: int
    last_ms: int
    passed: int = 0
    states: dict[FinalState, int] = {}
    cause: str = ""
    began_ms: int = 0
    ended_ms: int = 0

    def add(self, state: FinalState | None, cause: str, received_ms: int, span_ms: tuple[int, int]) -> None:
        """Count one path that ended here, or went on where `state` is None, and was here for that span."""
        self.first_ms = min(self.first_ms, received_ms)
        self.last_ms = max(self.last_ms, received_ms)
        began_ms, ended_ms = span_ms
        self.began_ms = min(self.began_ms or began_ms, began_ms)
        self.ended_ms = max(self.ended_ms, ended_ms)
        if state is None:
            self.passed += 1
            return
        self.states[state] = self.states.get(state, 0) + 1
        if state is FinalState.ERROR and not self.cause:
            self.cause = cause[:CAUSE_CHARS_MAX]

    @property
    def span_ms(self) -> tuple[int, int]:
        """When the run of the window begins and ends, epoch milliseconds."""
        return (self.began_ms, self.ended_ms) if self.began_ms else (self.first_ms, self.last_ms)

    @property
    def failed(self) -> bool:
        """Whether a file failed here."""
        return FinalState.ERROR in self.states

    @property
    def count(self) -> int:
        """How many paths came here."""
        return self.passed + sum(self.states.values())

    def run_id(self, journal_node: str, job: FlowNode) -> str:
        """The run's id, unique by the journal, the job and the first entry."""
        name = f"{PRODUCER}:{journal_node}:{job.namespace}:{job.name}:{self.seq}"
        return str(uuid.uuid5(uuid.NAMESPACE_URL, name))
