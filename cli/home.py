"""The home that a command works on: its journal, if there is one, and the settings of its runner."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Final

from waybill.exporter.directory import is_root
from waybill.exporter.keys import PROJECTION as KEYS
from waybill.exporter.names import ARCHIVE, LAYOUT
from waybill.facets.json_events import instant
from waybill.lineage.index import INDEX
from waybill.transport import Journal, NotFoundError, Settings, locks
from waybill.transport.clock import SYSTEM_CLOCK
from waybill.transport.config import (
    AGREED,
    MARQUEZ,
    agree,
    agreed,
    check_agreed_root,
    check_options as check_differing,
    conflicts,
    follow,
    taking_over,
)
from waybill.transport.journal import has_traces
from waybill.transport.root import check_root, known_root

from . import console
from .options import ORIGIN

if TYPE_CHECKING:
    from waybill.lineage import OpenFile
    from waybill.lineage.answers import FileAnswers, GraphAnswers
    from waybill.lineage.index import IndexReader, JobRun
    from waybill.transport import FlushReport
    from waybill.transport.runner import OpenRun

_OF_FILES: Final = frozenset({ARCHIVE, INDEX, KEYS, LAYOUT})
"""The projections that are not backends."""

_SILENT_MS: Final = 3_600_000
_ENDLESS_RUNS: Final = 3
"""So many runs of a producer, all silent for so long, are no chance."""


def list_open_runs(journal: Journal | None) -> tuple[list[tuple[OpenFile, OpenRun]], dict[str, JobRun]]:
    """The files and runs of a home that have begun and not ended, the longest silent first.

    Each comes with the values that its end has to repeat. By did, those that are no files follow.
    """
    from waybill.lineage.index import IndexReader

    if journal is None:
        return [], {}
    with IndexReader.open(journal.home, journal) as index:
        if index.lack is not None:
            console.note(index.lack)
        found = index.open_runs()
        return found, index.job_runs([file.did for file, _ in found])


def endless_producers(index: IndexReader) -> Iterator[str]:
    """A sentence about each producer of which no run has ever ended, such as Flink with its own defaults."""
    silent_since_ms = SYSTEM_CLOCK.now_ms() - _SILENT_MS
    for producer, count in index.endless_producers(silent_since_ms, least=_ENDLESS_RUNS):
        says = f"none of the {count:,} runs of {producer} has ended, and all have been silent for an hour"
        yield f"{says}; docs/openlineage.md#flink says what its ends need"


def clocks_ahead(index: IndexReader) -> Iterator[str]:
    """A sentence about each job or dataset of which an event was timed after its receipt."""
    for namespace, name, said_us, received_us in index.list_ahead():
        told = f"an event of {namespace}/{name} is timed {instant(said_us // 1_000)}"
        says = f"{told} and counts in the graph as of its receipt, {instant(received_us // 1_000)}"
        yield f"{says}; correct the clock of its sender"


@contextlib.contextmanager
def open_answers(
    settings: Settings, exported: str | None
) -> Iterator[tuple[FileAnswers, str, Journal | None]]:
    """What answers questions of a command: of the home, of a root alone, or of what was exported.

    Gives the answers, a phrase for the place that they are about, and the home's journal if it is asked.
    """
    from waybill.exporter.keys import Keys
    from waybill.exporter.query import TailReader
    from waybill.lineage.answers import FileAnswers, HomeAnswers
    from waybill.lineage.index import FolderRelations, Published

    if exported is not None:
        from waybill.exporter.query import ExportedFiles

        check_home(settings, needed=False)
        destination = ExportedFiles(exported)
        published = Published(destination, destination.root)
        answers = FileAnswers(destination.root, destination, published.open, settings)
        yield answers, f"at {destination.name}", None
        return
    with _opened(settings) as (journal, agreed, is_of_home):
        if journal is None or not is_of_home:
            published = Published(FolderRelations(agreed.root), agreed.root)
            files = FileAnswers(agreed.root, Keys(), published.open, agreed)
            yield files, f"below {agreed.root}", journal
        else:
            home = HomeAnswers(journal, agreed, TailReader(journal), Keys())
            yield home, f"in {journal.path} and below {agreed.root}", journal


@contextlib.contextmanager
def open_graph(settings: Settings) -> Iterator[tuple[GraphAnswers, Journal]]:
    """What answers questions about the graph of a home, and its journal.

    Raises:
        NotFoundError: the root of these settings is not the home's.
    """
    from waybill.lineage.answers import GraphAnswers

    with _opened(settings) as (journal, agreed, is_of_home):
        if journal is None or not is_of_home:
            raise NotFoundError(f"{agreed.root} has only records; ask the home that filed them")
        yield GraphAnswers(journal), journal


@contextlib.contextmanager
def _opened(settings: Settings) -> Iterator[tuple[Journal | None, Settings, bool]]:
    """The journal of a home, its agreed settings, and whether the home files into their root."""
    with existing_journal(settings, to_read=True) as journal:
        agreed = as_agreed(settings, journal)
        _check_root(agreed, journal)
        yield journal, agreed, journal is not None and files_into(journal, agreed.root)


def is_home(folder: Path) -> bool:
    """Whether a folder is a home: a program has opened a journal there, or it has the files of a root.

    Raises:
        JournalError: the journal is missing, or the folder cannot be opened.
    """
    return Journal.exists(folder) or has_traces(folder) or is_root(folder)


def check_home(settings: Settings, *, needed: bool | None = None) -> None:
    """Raise a `NotFoundError` if there is no home; a home whose journal was moved away still is one.

    Args:
        settings: the settings of the command.
        needed: whether the command needs the default home; None: it does unless the user gave a root. A home
            that somebody gave is always needed.
    """
    if needed is None:
        needed = settings.origins["root"] != ORIGIN
    if not (needed or settings.explicit("home")) or is_home(settings.home):
        return
    origin = settings.origins["home"]
    said = f" (from {origin})" if settings.explicit("home") and origin != ORIGIN else ""
    if settings.home.is_dir():
        raise NotFoundError(
            f"the folder {settings.home} is not a home{said}: correct --home, or create a home "
            "with `waybill init`"
        )
    raise NotFoundError(
        f"there is no home at {settings.home} yet{said}: `waybill init` creates one, or give --home"
    )


def check_own_root(settings: Settings) -> None:
    """Raise a `SettingsConflictError` if somebody gave a root that is not the home's, as `agree` does.

    So a typo never changes the root, whether or not a runner is alive.
    """
    if not settings.explicit("root"):
        return
    with any_journal(settings, to_read=True) as journal:
        if journal is not None:
            check_agreed_root(journal, settings)


def check_given_root(settings: Settings, *, may_become: bool = False) -> None:
    """Raise a `NotFoundError` if the user gave a folder that is not a root.

    The folder that the home files into is accepted even if it is still empty; with `may_become`, any folder
    is. A root from the environment or a file must be the home's, as `check_own_root` says.
    """
    if settings.origins["root"] != ORIGIN:
        check_own_root(settings)
    if settings.origins["root"] != ORIGIN or is_root(settings.root):
        return
    if settings.root.is_dir():
        if may_become:
            return
        with any_journal(settings, to_read=True) as journal:
            if journal is not None and files_into(journal, settings.root):
                return
    check_root_folder(settings.root, way=" with --root")


def check_root_folder(folder: Path, *, way: str = "") -> None:
    """Raise a `NotFoundError` if a folder is not a root or does not exist; `way` says how to give another."""
    if not folder.is_dir():
        raise NotFoundError(f"there is no folder {folder}; give the path of a root{way}")
    if not is_root(folder):
        raise NotFoundError(
            f"the folder {folder} is not a root: nothing was ever filed there; give the path of a root{way}"
        )


@contextlib.contextmanager
def existing_journal(
    settings: Settings, *, needed: bool | None = None, to_read: bool = False
) -> Iterator[Journal | None]:
    """Open the journal of a home; None if it has none yet. The home must exist, as `check_home` says.

    With `to_read`, it is only read, and waits for nobody.
    """
    check_home(settings, needed=needed)
    with any_journal(settings, to_read=to_read) as journal:
        yield journal


@contextlib.contextmanager
def any_journal(settings: Settings, *, to_read: bool = False) -> Iterator[Journal | None]:
    """Open the journal of a home; None if it has none, or does not exist; `to_read`: see above."""
    if not Journal.exists(settings.home):
        yield None
        return
    with contextlib.closing(Journal(settings.home, to_read=to_read)) as journal:
        journal.max_bytes = as_agreed(settings, journal).journal_max_bytes
        yield journal


def make_home(settings: Settings) -> str | None:
    """Create the home with these settings; return the command that would change an existing home's settings.

    None if nothing differs.
    """
    with contextlib.closing(Journal(settings.home)) as journal:
        if not agreed(journal):
            agree(journal, settings)
        return taking_over(journal, settings)


def as_agreed(settings: Settings, journal: Journal | None) -> Settings:
    """These settings, with the home's own value for each setting that the user did not give."""
    return follow(settings, agreed(journal)) if journal else settings


def as_worked_by(settings: Settings, journal: Journal | None) -> Settings:
    """The result of `as_agreed`; where a live runner uses different values, those win."""
    if journal is None:
        return settings
    yielding = [one.name for one in conflicts(journal, settings)] if locks.is_held(journal.home) else []
    return follow(settings, agreed(journal), yielding)


def agreed_settings(settings: Settings, *, needed: bool | None = None) -> Settings:
    """The result of `as_agreed` with the home's journal; the home must exist, as `check_home` says."""
    with existing_journal(settings, needed=needed, to_read=True) as journal:
        return as_agreed(settings, journal)


def checked_root(agreed: Settings) -> Path:
    """The root of these settings: the user's, which must exist, or the one that the home files into.

    Raises:
        NotFoundError: the user's does not exist.
        RootError: its path holds another folder, or an older copy.
    """
    with existing_journal(agreed, to_read=True) as journal:
        _check_root(agreed, journal)
    return agreed.root


def _check_root(agreed: Settings, journal: Journal | None) -> None:
    if agreed.origins["root"] == ORIGIN:
        check_given_root(agreed)
    elif journal is not None:
        if agreed.explicit("root"):
            check_agreed_root(journal, agreed)
        check_root(journal, agreed.root)


def files_into(journal: Journal, root: Path) -> bool:
    """Whether a folder is the root that the journal's home files into."""
    own = agreed(journal).get("root")
    return root.resolve() == Path(own or journal.home).resolve()


def check_options(settings: Settings, names: Collection[str] | None = None) -> None:
    """Check the options against what the home keeps, where another process works by that.

    Args:
        settings: those of the command.
        names: of the options; None: of all, if a runner lives; what else differs from it is said. The root
            of a home that has filed nothing is checked even without a runner, as it would have two then.

    Raises:
        SettingsConflictError: an option differs.
    """
    with any_journal(settings, to_read=True) as journal:
        if journal is None:
            return
        if names is None and known_root(journal) is None:
            check_differing(journal, settings, {"root"})
        if not (names or locks.is_held(settings.home)):
            return
        check_differing(journal, settings, names or {*AGREED} - {"root"})
        for conflict in [] if names or settings.strict else conflicts(journal, settings):
            console.note(str(conflict))


def flush_with_progress(settings: Settings, timeout_s: float | None = None) -> FlushReport:
    """Flush a home with a progress bar, if its live runner does not work by other options."""
    from waybill.transport import flush

    check_options(settings)
    with console.progress("flushing") as update:

        def show(done: int, total: int, behind: Sequence[str]) -> None:
            text = f"flushing, waiting for {', '.join(behind)}" if behind else "flushing"
            update(description=text, completed=done, total=total)

        return flush(settings, timeout_s=timeout_s, on_progress=show)


def backends_of(settings: Settings, journal: Journal | None, name: str | None = None) -> list[str]:
    """The backends that the settings or the journal know; only the one with this name, if it is given.

    Raises:
        NotFoundError: they know none with this name.
    """
    known = {MARQUEZ} | {one.name for one in as_agreed(settings, journal).backends}
    known |= projections_of(journal) - _OF_FILES
    if name is None:
        return sorted(known)
    _check_name(name, known, "backend")
    return [name]


def check_projection(journal: Journal | None, name: str | None) -> None:
    """Raise a `NotFoundError` if there is no projection with this name; None means all of them."""
    if name is not None:
        _check_name(name, projections_of(journal), "projection")


def projections_of(journal: Journal | None) -> set[str]:
    """The installed projections, and those that the journal knows; each backend is one."""
    from waybill.transport.runner import PROJECTIONS_GROUP

    return {point.name for point in entry_points(group=PROJECTIONS_GROUP)} | set(
        journal.cursors() if journal else ()
    )


def _check_name(name: str, known: set[str], what: str) -> None:
    if name not in known:
        raise NotFoundError(f"there is no {what} {name}; choose from: {', '.join(sorted(known))}")
