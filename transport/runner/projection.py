"""Projections: they read the journal in order, and each keeps an output up to date.

Packages register theirs in the entry-point group ``waybill.projections``: a name and a callable ``(journal,
settings) -> Projection | Sequence[Projection] | None``, which returns None if the settings want none.

Other processes read a projection's progress from the journal. By default it has processed all entries up to
its cursor. A package whose projections process entries out of order, or that knows more about them, registers
a `TellProgress` in the group ``waybill.progress``. A projection that publishes files for a flush stores their
names by `note_published`. Things that wait for their time are kept under keys that begin with ``due:``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from ..clock import Clock
    from ..config import Settings
    from ..journal import Journal

log = logging.getLogger("waybill.runner")

PROJECTIONS_GROUP: Final = "waybill.projections"
PROGRESS_GROUP: Final = "waybill.progress"

_DUE: Final = "due:"
_PUBLISHED: Final = "flush:"
_FLUSHES_MAX: Final = 16


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one step of a projection.

    Attributes:
        applied: how much was done: the entries that the cursor moved over, or the files made; 0: nothing.
        retry_s: call again after this many seconds even if no entry arrives; None: only when an entry
            arrives.
        gathers: new entries are no reason to call it earlier; a mark is.
        follows: what this other projection does is a reason, too.
        problem: why it cannot continue, in one sentence; None if there is no problem.
        to_correct: the setting to correct before it can continue; None: it continues by itself.
    """

    applied: int = 0
    retry_s: float | None = None
    gathers: bool = False
    follows: str | None = None
    problem: str | None = None
    to_correct: str | None = None


@runtime_checkable
class Projection(Protocol):
    """A consumer of the journal with its own durable cursor.

    A projection pulls entries by `Journal.feed`, applies them idempotently, then moves its cursor. Its output
    is a pure function of the journal, so it may crash, be repeated, or be deleted and rebuilt. Only one
    thread calls it at a time. If a step raises an error other than a disk error, or runners die at it, it is
    closed and reopened in a separate process, which gets fewer entries at a time. An entry that fails there
    alone is set aside as poison.
    """

    name: str

    @property
    def stores(self) -> bool | None:
        """Whether its output keeps the entries' content, so old entries may go before the journal is full.

        None: it only notes what entries say, which is no reason for any to go.
        """

    def step(self) -> Step:
        """Do one bounded piece of work without waiting; the caller waits for `Step.retry_s`."""

    def pending(self) -> int:
        """How many entries it has not processed yet."""

    def finish(self) -> None:
        """Complete the output before the runner ends, if a step leaves any of it open."""
        return

    def close(self) -> None:
        """Release its resources, if it holds any."""
        return


OpenProjection = Callable[["Journal", "Settings"], Projection | Sequence[Projection] | None]
"""The type of an entry point in the group ``waybill.projections``."""


def open_projections(
    journal: Journal, settings: Settings, wanted: str | None = None
) -> tuple[list[Projection], dict[str, str]]:
    """Open the projections that the settings want; return them, and by name why others could not be loaded.

    With `wanted`, only the projection of that name stays open.
    """
    opened: list[Projection] = []
    problems: dict[str, str] = {}
    for point in sorted(entry_points(group=PROJECTIONS_GROUP), key=lambda point: point.name):
        try:
            open_projection: OpenProjection = point.load()
            offered = open_projection(journal, settings)
        except Exception as error:  # must not stop the others
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
    """The backend has, or will get, a summary that stands for it; see the setting ``marquez_detail``."""
    REFUSED = "refused for good"
    POISON = "set aside as poison"
    """The projection cannot apply it; see `waybill poison`."""


TellProgress = Callable[["Journal", str, int], Progress | None]
"""The type of an entry point in the group ``waybill.progress``.

It returns a projection's progress with an entry; None: the projection's cursor decides.
"""


def progress_of(journal: Journal, projection: str, seq: int) -> Progress:
    """How far a projection is with an entry of the journal."""
    for poison in journal.poison.all(projection, seq):
        return Progress.POISON if poison.retry_seq is None else Progress.WAITING
    for point in entry_points(group=PROGRESS_GROUP):
        try:
            tell: TellProgress = point.load()
        except Exception:
            log.exception(
                "%s cannot be loaded, so the progress of its projections is read from their cursors",
                point.value,
            )
            continue
        if (progress := tell(journal, projection, seq)) is not None:
            return progress
    return Progress.DONE if seq <= journal.cursor(projection) else Progress.WAITING


def left_s(clock: Clock, at_ms: int, longest_s: float) -> float:
    """The seconds left until an instant of received time, given in epoch milliseconds.

    At most `longest_s`, the longest wait for such an instant: after the clock is set back, received times lie
    in the future.
    """
    return min(max(at_ms - clock.now_ms(), 0) / 1_000, longest_s)


def unsettled(journal: Journal, projection: str) -> int:
    """How many things that a projection has read wait for their time, such as ended runs."""
    return len(journal.state(projection, _DUE))


def note_published(
    journal: Journal, projection: str, flush_seq: int, files: Iterable[str]
) -> tuple[dict[str, bytes], list[str]]:
    """The state to write and the keys to delete for the files (paths below the root) of one flush."""
    outdated = sorted({*published(journal, projection), flush_seq})[:-_FLUSHES_MAX]
    put = {f"{_PUBLISHED}{flush_seq}": msgspec.json.encode(sorted(files))}
    return put, [f"{_PUBLISHED}{seq}" for seq in outdated]


def published(journal: Journal, projection: str) -> dict[int, list[str]]:
    """The files that a projection published for the last flushes, by the flushes' sequence numbers."""
    return {
        int(key.removeprefix(_PUBLISHED)): msgspec.json.decode(files, type=list[str])
        for key, files in journal.state(projection, _PUBLISHED).items()
    }
