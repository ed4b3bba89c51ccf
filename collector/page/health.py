"""The view of a home's health: checks, backlog, what was set aside and why, and the room on its disks."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from waybill.exporter.health import Problem as HomeProblem, ProblemKind, ProjectionStatus, projection_statuses
from waybill.marquez import dead_letters, retry_dead_letters
from waybill.transport import NotFoundError, Rejects, locks

from .view import View

if TYPE_CHECKING:
    from waybill.lineage.answers import HomeAnswers
    from waybill.marquez import DeadLetter
    from waybill.transport import Journal, Reject, Settings
    from waybill.transport.admission import Redaction
    from waybill.transport.journal import Poison

    from .view import Rows

SHOWN_MAX: Final = 50
"""So many items of each box are shown."""

CHECKS: Final = {
    ProblemKind.DISK: "The home's disk has room",
    ProblemKind.JOURNAL: "The journal has room",
    ProblemKind.ROOT: "The root can be read",
    ProblemKind.PROJECTION: "Every projection goes on",
    ProblemKind.SETTING: "No setting holds up a projection",
    ProblemKind.LAG: "No projection is far behind",
    ProblemKind.POISON: "Every entry can be applied",
    ProblemKind.DEAD_LETTERS: "Backends refuse no event for good",
    ProblemKind.QUARANTINE: "No file is damaged",
    ProblemKind.DIFFERING: "The files are those of the ledger",
    ProblemKind.FALLBACK: "No entry waits outside the home",
    ProblemKind.EVENT_LOGS: "Spark's event logs can be followed",
}
"""What each check finds where nothing is wrong."""

DEAD_LETTERS: Final = "dead-letters"
POISON: Final = "poison"
REJECTS: Final = "rejects"


class Check(msgspec.Struct, frozen=True):
    """A check, and what it found wrong.

    Attributes:
        kind: as in the alerts.
        title: what is so if there are no problems.
        problems: what is wrong, and what to do.
    """

    kind: ProblemKind
    title: str
    problems: list[str]


class SetAside(msgspec.Struct, frozen=True):
    """Something that was set aside.

    Attributes:
        id: what identifies it in its box, together with the owner.
        owner: the backend or the projection; empty for a reject.
        about: what it is about.
        reason: why it was set aside.
        set_aside_ms: when, in epoch milliseconds.
    """

    id: str
    owner: str
    about: str
    reason: str
    set_aside_ms: int


class Box(msgspec.Struct, frozen=True):
    """A box of what was set aside: its name, how much it has, and the newest of it."""

    name: str
    total: int
    newest: list[SetAside]


class Disk(msgspec.Struct, frozen=True):
    """The room at a place; None where it cannot be asked."""

    name: str
    path: str
    free_bytes: int | None
    size_bytes: int | None


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The health of a home.

    Attributes:
        checks: all checks.
        runner_alive: whether a runner works on the home.
        projections: the progress of each, by name.
        boxes: what was set aside.
        disks: the room of the home and of the root.
        journal_bytes: the size of the journal.
        journal_max_bytes: from which size on it refuses entries.
    """

    checks: list[Check]
    runner_alive: bool
    projections: dict[str, ProjectionStatus]
    boxes: list[Box]
    disks: list[Disk]
    journal_bytes: int
    journal_max_bytes: int


class HealthOfHome(NamedTuple):
    """Asks about one home, and has what was set aside tried again.

    Attributes:
        journal: the home's journal.
        settings: its agreed settings.
        redaction: what is done to events before they are kept.
        find_problems: finds everything that is wrong.
    """

    journal: Journal
    settings: Settings
    redaction: Redaction
    find_problems: Callable[[], list[HomeProblem]]

    def view(self) -> View:
        """The view."""
        return View("/health", "Health", lambda _: None, self.ask, rows_of)

    def ask(self, _: HomeAnswers, __: None) -> Health:
        """The health of the home now."""
        journal, problems = self.journal, self.find_problems()
        kinds = [kind for kind in CHECKS if kind is not ProblemKind.EVENT_LOGS or self.settings.event_logs]
        told = {kind: [one.sentence for one in problems if one.kind is kind] for kind in kinds}
        return Health(
            checks=[Check(kind, CHECKS[kind], told[kind]) for kind in kinds],
            runner_alive=locks.is_held(journal.home),
            projections=projection_statuses(journal),
            boxes=[_box(*box) for box in self._boxes().items()],
            disks=[_disk("home", journal.home), _disk("root", self.settings.root)],
            journal_bytes=journal.size_bytes(),
            journal_max_bytes=journal.max_bytes,
        )

    def _boxes(self) -> dict[str, list[SetAside]]:
        journal = self.journal
        letters = [one for name in sorted(journal.cursors()) for one in dead_letters(journal, name)]
        return {
            DEAD_LETTERS: [_set_aside(one, one.seq, one.backend, one.key) for one in letters],
            POISON: [
                _set_aside(one, one.seq, one.projection, one.system_name) for one in journal.poison.all()
            ],
            REJECTS: [_set_aside(one, one.id, "", one.kind.name.lower()) for one in Rejects(journal).all()],
        }

    def retry(self, box: str, item_id: str, owner: str) -> None:
        """Have something that was set aside tried again: at once if it is a reject, else by the runner.

        Raises:
            NotFoundError: it is not there any more.
            AdmissionError: it is a reject, and is refused again.
            JournalError: that could not be kept.
        """
        items = self._boxes().get(box, [])
        if (item_id, owner) not in {(one.id, one.owner) for one in items}:
            raise NotFoundError("it is not there any more; load the page again")
        if box == DEAD_LETTERS:
            retry_dead_letters(self.journal, [int(item_id)], owner)
        elif box == POISON:
            self.journal.poison.retry(owner, [int(item_id)])
        else:
            rejects = Rejects(self.journal, self.redaction)
            rejects.retry(item_id, rejects.body(item_id) or b"", self.settings.system_name)


def _set_aside(one: DeadLetter | Poison | Reject, item_id: object, owner: str, about: str) -> SetAside:
    return SetAside(str(item_id), owner, about, one.reason, one.set_aside_ms)


def _box(name: str, items: list[SetAside]) -> Box:
    return Box(name, len(items), sorted(items, key=lambda one: -one.set_aside_ms)[:SHOWN_MAX])


def _disk(name: str, path: Path) -> Disk:
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return Disk(name, str(path), None, None)
    return Disk(name, str(path), usage.free, usage.total)


def rows_of(health: Health) -> Rows:
    """The checks as a table."""
    yield "kind", "check", "problem"
    for check in health.checks:
        for problem in check.problems or [""]:
            yield check.kind.value, check.title, problem
