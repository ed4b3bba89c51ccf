"""Projections: what reads the journal in order and keeps an output up to date.

Packages offer theirs under the entry-point group ``waybill.projections``: a name and a callable
``(journal, settings) -> Projection | Sequence[Projection] | None``, which returns None where the settings ask
for none.

Other processes read from the journal what a projection has done. By default it has dealt with all entries up
to its cursor. A package whose projections deal with entries out of order, or that knows more about them,
offers a `TellProgress` under the group ``waybill.progress``. A projection that publishes files for a flush
stores their names by `note_published`. What waits for its time is kept under keys that begin with ``due:``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from waybill.transport.config import Settings
    from waybill.transport.journal import Journal

log = logging.getLogger("waybill.runner")

PROJECTIONS_GROUP: Final = "waybill.projections"
PROGRESS_GROUP: Final = "waybill.progress"

_DUE: Final = "due:"
_PUBLISHED: Final = "flush:"
_FLUSHES_MAX: Final = 16


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one step of a projection.

    Attributes:
        applied: how much was done, as entries that the cursor moved over or files made; 0: nothing.
        retry_s: call again after this many seconds even if no entry arrives; None: only when one does.
        problem: why it cannot go on, in one sentence; None when all is well.
        to_correct: the setting that somebody has to correct before it can go on; None: it goes on by itself.
    """

    applied: int = 0
    retry_s: float | None = None
    problem: str | None = None
    to_correct: str | None = None


@runtime_checkable
class Projection(Protocol):
    """A consumer of the journal with a durable cursor of its own.

    A projection pulls entries by `Journal.feed`, applies them idempotently, then moves its cursor. Its output
    is a pure function of the journal, so that it may crash, be repeated, or be deleted and rebuilt. One
    thread calls it at a time. If a step raises an error that is not the disk's, or runners die at it, it is
    closed and opened again in a process of its own, which the journal feeds fewer entries at a time; an entry
    that it cannot apply there, alone, is set aside as poison.
    """

    name: str
    stores: bool
    """Whether its output keeps what the entries said, so that old ones may go before the journal is full."""

    def step(self) -> Step:
        """Do one bounded piece of work without waiting; the caller waits, as `Step.retry_s` says."""

    def pending(self) -> int:
        """How many entries it has not dealt with yet."""

    def finish(self) -> None:
        """Complete the output, because the runner is about to end."""

    def close(self) -> None:
        """Release what it holds."""


OpenProjection = Callable[["Journal", "Settings"], Projection | Sequence[Projection] | None]
"""What an entry point of the group ``waybill.projections`` names."""


def open_projections(
    journal: Journal, settings: Settings, wanted: str | None = None
) -> tuple[list[Projection], dict[str, str]]:
    """The projections that the settings ask for, and by name the problem of each that could not be loaded.

    With `wanted` only the projection of that name; the others are closed again.
    """
    opened: list[Projection] = []
    problems: dict[str, str] = {}
    for point in sorted(entry_points(group=PROJECTIONS_GROUP), key=lambda point: point.name):
        try:
            open_projection: OpenProjection = point.load()
            offered = open_projection(journal, settings)
        except Exception as error:  # which never stops the others
            log.exception("projection %s cannot be loaded", point.name)
            problems[point.name] = f"{point.value} cannot be loaded: {error}"
        else:
            if isinstance(offered, Sequence):
                opened.extend(offered)
            elif offered is not None:
                opened.append(offered)
    for projection in opened:
        if wanted not in {None, projection.name}:
            projection.close()
    return [projection for projection in opened if wanted in {None, projection.name}], problems


class Progress(StrEnum):
    """How far a projection is with an entry."""

    WAITING = "waiting"
    DONE = "done"
    COALESCED = "in a summary"
    """The backend has, or gets, a summary that stands for it; see the setting ``marquez_detail``."""
    REFUSED = "refused for good"
    POISON = "set aside as poison"
    """The projection cannot apply it; see `waybill poison`."""


TellProgress = Callable[["Journal", str, int], Progress | None]
"""What an entry point of the group ``waybill.progress`` names.

It tells what became of a projection's entry; None: no more than the projection's cursor says.
"""


def progress_of(journal: Journal, projection: str, seq: int) -> Progress:
    """How far a projection is with an entry of the journal."""
    for poison in journal.poison.all(projection, seq):
        return Progress.POISON if poison.retry_seq is None else Progress.WAITING
    for point in entry_points(group=PROGRESS_GROUP):
        try:
            tell: TellProgress = point.load()
        except Exception:
            log.exception("%s cannot be loaded, so its projections are known by their cursors", point.value)
            continue
        if (progress := tell(journal, projection, seq)) is not None:
            return progress
    return Progress.DONE if seq <= journal.cursor(projection) else Progress.WAITING


def left_s(at_ms: int, longest_s: float) -> float:
    """How many seconds are left until an instant of received time, in epoch milliseconds.

    They are `longest_s` at most, which is how long anything waits for that: after the clock was set back,
    received time is ahead of it.
    """
    return min(max(at_ms - time.time_ns() // 1_000_000, 0) / 1_000, longest_s)


def unsettled(journal: Journal, projection: str) -> int:
    """How many things a projection has read that wait for their time, as runs do that have ended."""
    return len(journal.state(projection, _DUE))


def note_published(
    journal: Journal, projection: str, flush_seq: int, files: Iterable[str]
) -> tuple[dict[str, bytes], list[str]]:
    """The state to write and the keys to delete for the files (paths below the root) of one flush."""
    outdated = sorted({*published(journal, projection), flush_seq})[:-_FLUSHES_MAX]
    put = {f"{_PUBLISHED}{flush_seq}": msgspec.json.encode(sorted(files))}
    return put, [f"{_PUBLISHED}{seq}" for seq in outdated]


def published(journal: Journal, projection: str) -> dict[int, list[str]]:
    """The files that a projection published for the last flushes, by the sequence numbers of their marks."""
    return {
        int(key.removeprefix(_PUBLISHED)): msgspec.json.decode(files, type=list[str])
        for key, files in journal.state(projection, _PUBLISHED).items()
    }
