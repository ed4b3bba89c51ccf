"""The problems of a home: one view for `status`, `doctor`, ``/health/ready``, the metrics and the alerts.

Importing this loads no pyarrow.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.transport import locks
from waybill.transport.config import apply_command
from waybill.transport.counting import counted
from waybill.transport.errors import JournalError, RootError
from waybill.transport.fallback import fallback_of, waiting_in_fallback
from waybill.transport.journal import NEARLY_FULL
from waybill.transport.root import check_root
from waybill.transport.runner import LOG_NAME, statuses, unsettled

from .differing import DIFFERING, list_differing
from .names import DAMAGED, LAYOUT, OF_PLAIN_SPARK

if TYPE_CHECKING:
    from waybill.transport.config import Settings
    from waybill.transport.journal import Journal

ROOM_BYTES_MIN: Final = 2 * 2**20
"""The least room on the home's disk. A body of 1 MiB is written to the WAL, and later to the database."""

LAG_MAX_S: Final = 600.0
"""A projection that is further behind is a problem."""

_RUNNER: Final = "runner"
"""The name in a lag problem while no runner is alive."""


class ProblemKind(StrEnum):
    """The kind of a problem; each has its own alert."""

    DISK = "disk"
    JOURNAL = "journal"
    ROOT = "root"
    PROJECTION = "projection"
    SETTING = "setting"
    LAG = "lag"
    POISON = "poison"
    QUARANTINE = "quarantine"
    DIFFERING = "differing"
    DEAD_LETTERS = "dead-letters"
    FALLBACK = "fallback"
    EVENT_LOGS = "event-logs"


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong with a home.

    Attributes:
        name: the projection, backend, file or folder concerned.
        says: what is wrong.
        fix: what to do about it.
        stops_intake: whether the home can accept no more entries.
    """

    kind: ProblemKind
    name: str
    says: str
    fix: str
    stops_intake: bool = False

    @property
    def sentence(self) -> str:
        """What is wrong, and what to do."""
        return f"{self.says}; {self.fix}"

    @property
    def about(self) -> str:
        """The part concerned: ``journal``, ``root``, ``marquez``, ``poison:layout`` and the like."""
        if self.kind in {ProblemKind.DISK, ProblemKind.JOURNAL}:
            return ProblemKind.JOURNAL.value
        if self.kind in _ALONE:
            return self.kind.value
        return self.name if self.kind in HOLDS_UP else f"{self.kind.value}:{self.name}"


class ProjectionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A projection's progress: its last durable entry, how many follow, and how old the first of those is.

    Marks, such as those of a flush, do not count.

    Attributes:
        unsettled: the number of ended runs whose records are written once they have settled.
    """

    cursor: int
    behind: int
    lag_s: float
    unsettled: int
    problem: str | None


HOLDS_UP: Final = frozenset({ProblemKind.PROJECTION, ProblemKind.SETTING})
"""The kinds that name a projection which cannot go on."""

_ALONE: Final = frozenset(
    {
        ProblemKind.ROOT,
        ProblemKind.QUARANTINE,
        ProblemKind.DIFFERING,
        ProblemKind.FALLBACK,
        ProblemKind.EVENT_LOGS,
    }
)


def problem_of(
    kind: ProblemKind, name: str, error: Exception | str, *, otherwise: str = "see the log"
) -> Problem:
    """Turn an error into a problem: its sentence says what is wrong, then what to do.

    `otherwise` is the fix if the sentence names none.
    """
    says, _, fix = str(error).partition("; ")
    return Problem(kind, name, says, fix or otherwise)


def problems_of(journal: Journal | None, settings: Settings) -> list[Problem]:
    """All problems of a home; those that stop its intake come first.

    Args:
        journal: the home's journal; None if there is none yet.
        settings: the home's agreed settings.

    Raises:
        JournalError: the journal cannot be read.
        OSError: the free space of the home's disk cannot be read.
    """
    of_home = _fallback(settings) if journal is None else problems_of_home(journal, settings)
    return [*of_home, *problems_of_root(journal, settings.root)]


def problems_of_home(journal: Journal, settings: Settings) -> list[Problem]:
    """The problems that the home's own, local disk shows; raises the same errors as `problems_of`."""
    found = [
        *_room(journal),
        *problems_of_projections(journal),
        *_poison(journal),
        *_dead_letters(journal),
        *_fallback(settings),
    ]
    return sorted(found, key=lambda one: not one.stops_intake)


def problems_of_root(journal: Journal | None, root: Path) -> list[Problem]:
    """The problems of the root, whose disk may not answer.

    Raises:
        JournalError: the journal cannot be read.
    """
    try:
        if journal is not None:
            check_root(journal, root)
        return [*_quarantined(journal, root), *_differing(journal, root)]
    except (RootError, OSError) as error:
        return [problem_of(ProblemKind.ROOT, str(root), error)]


def _room(journal: Journal) -> Iterator[Problem]:
    free_bytes, filled = shutil.disk_usage(journal.home).free, journal.filled
    home, limit = str(journal.home), f"journal_max_bytes = {journal.max_bytes}"
    raised = apply_command(journal.home, {"journal_max_bytes": "SIZE"})
    fix = f"see what holds up its projections, or raise the limit: `{raised}`"
    if free_bytes < ROOM_BYTES_MIN:
        says = f"the disk of {home} has only {free_bytes:,} bytes left, and nothing more is kept"
        yield Problem(ProblemKind.DISK, home, says, "free space there", stops_intake=True)
    if filled >= 1:
        says = f"the journal has reached {limit}, and nothing more is kept"
        yield Problem(ProblemKind.JOURNAL, home, says, fix, stops_intake=True)
    elif filled >= NEARLY_FULL:
        says = f"the journal is {filled:.0%} full, and nothing more is kept from {limit} on"
        yield Problem(ProblemKind.JOURNAL, home, says, fix)


def problems_of_projections(journal: Journal) -> Iterator[Problem]:
    """The projections that cannot go on or are far behind; raises the same errors as `problems_of`."""
    cursors, log = journal.cursors(), f"see {journal.home / LOG_NAME}"
    late_s: dict[str, float] = {}
    for name, status in sorted(statuses(journal).items()):
        if status.problem is not None:
            kind = ProblemKind.PROJECTION if status.to_correct is None else ProblemKind.SETTING
            yield problem_of(kind, name, status.problem, otherwise=log)
        elif (lag_s := journal.waiting(cursors.get(name, 0)).lag_s) > LAG_MAX_S:
            late_s[name] = lag_s  # a projection that is held up lags too, but then its cause is reported
    if late_s and not locks.is_held(journal.home):
        says = (
            f"no runner is alive, and entries have waited for {', '.join(late_s)} "
            f"for {max(late_s.values()) / 60:,.0f} minutes"
        )
        yield Problem(ProblemKind.LAG, _RUNNER, says, _command(journal.home, "flush"))
        return
    for name, lag_s in late_s.items():
        yield Problem(ProblemKind.LAG, name, f"{name} is {lag_s / 60:,.0f} minutes behind", log)


def projection_statuses(journal: Journal) -> dict[str, ProjectionStatus]:
    """The progress of each projection, by its name."""
    written, cursors = statuses(journal), journal.cursors()
    waiting = {name: journal.waiting(cursors.get(name, 0)) for name in written.keys() | cursors.keys()}
    return {
        name: ProjectionStatus(
            cursor=cursors.get(name, 0),
            behind=one.entries,
            lag_s=round(one.lag_s, 1),
            unsettled=unsettled(journal, name),
            problem=written[name].problem if name in written else None,
        )
        for name, one in sorted(waiting.items())
    }


def has_plain_spark(journal: Journal) -> bool:
    """Whether the layout has written records that rest on the word of Spark's listener alone."""
    return journal.state_get(LAYOUT, OF_PLAIN_SPARK) is not None


def _poison(journal: Journal) -> Iterator[Problem]:
    for name, count in sorted(journal.poison.counts().items()):
        says = f"{name} has set aside {counted(count, 'entry', 'entries')} that it cannot apply"
        fix = f"to see why: {_command(journal.home, 'poison list')}"
        yield Problem(ProblemKind.POISON, name, says, fix)


def _dead_letters(journal: Journal) -> Iterator[Problem]:
    from waybill.marquez import dead_letters

    for name in sorted(journal.cursors()):
        if count := len(dead_letters(journal, name)):
            fix = f"to see why: {_command(journal.home, 'dead-letters list')}"
            says = f"{name} has refused {counted(count, 'event')} for good"
            yield Problem(ProblemKind.DEAD_LETTERS, name, says, fix)


def _fallback(settings: Settings) -> Iterator[Problem]:
    where = str(fallback_of(settings))
    try:
        if count := waiting_in_fallback(settings):
            says = f"{counted(count, 'entry waits', 'entries wait')} in {where}"
            fix = f"to have the home adopt them: {_command(settings.home, 'flush')}"
            yield Problem(ProblemKind.FALLBACK, where, says, fix)
    except JournalError as error:
        yield problem_of(ProblemKind.FALLBACK, where, f"nothing is adopted from {where}: {error}")


def _quarantined(journal: Journal | None, root: Path) -> Iterator[Problem]:
    if not (root / DAMAGED).is_dir():
        return  # nearly always
    from .quarantine import list_quarantined

    if count := sum(1 for _ in list_quarantined(root)):
        files = counted(count, "damaged file was", "damaged files were")
        fix = f"to see how to get their rows back: `waybill verify {_given(journal, root)}`"
        yield Problem(ProblemKind.QUARANTINE, str(root), f"{files} set aside below {root}", fix)


def _differing(journal: Journal | None, root: Path) -> Iterator[Problem]:
    if not (root / DIFFERING).exists():
        return  # nearly always
    if count := len(list_differing(root)):
        says = f"{counted(count, 'file is', 'files are')} gone, changed or unknown to the ledger below {root}"
        given = _given(journal, root)
        fix = f"to see which: `waybill verify {given}`; to restore them: `waybill repair {given}`"
        yield Problem(ProblemKind.DIFFERING, str(root), says, fix)


def _given(journal: Journal | None, root: Path) -> str:
    """The options that name a root and its home."""
    home = f" --home {shlex.quote(str(journal.home))}" if journal else ""
    return f"--root {shlex.quote(str(root))}{home}"


def _command(home: Path, words: str) -> str:
    """A command for this home, ready to paste."""
    return f"`waybill {words} --home {shlex.quote(str(home))}`"
