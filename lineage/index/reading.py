"""Asking the index, with what its journal has accepted since, which is added in memory by the same code.

It is opened to read only: it waits for no writer and makes no file. All answers of one reader are as of the
moment at which it was opened, or renewed.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar, cast

import apsw
import msgspec

from waybill.transport.budget import check_budget
from waybill.transport.config import TRIMMERS, agreed
from waybill.transport.counting import counted
from waybill.transport.errors import JournalError, reason_of
from waybill.transport.journal import FileContent, OpenedToRead

from ..graph import GRAPH_VIEWS, GraphTables, find_onward, list_lacks, set_trimmers
from .facts import JobRun, Kind, open_file_of, told_in
from .tables import FORMAT, INDEX_NAME, OPEN_RUN, SCHEMA, Tables, place_in, place_in_journal

if TYPE_CHECKING:
    from waybill.transport.journal import Journal
    from waybill.transport.runner import OpenRun

    from ..graph import FileEnd, Onward, Question
    from .facts import Fact, OpenFile

_Answer = TypeVar("_Answer")

_OPEN_FLAGS: Final = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
_STEPS_BETWEEN_CHECKS: Final = 100_000
_ENTRIES_AT_ONCE: Final = 5_000
_BYTES_AT_ONCE: Final = 32 * 2**20

_GRAPH_SIZE_MAX: Final = 100_000
"""So many nodes, edges and the like are added to the graph in memory, which takes seconds and some 50 MB."""

_FACTS_OF: Final = """
SELECT did, kind, value.text, at_ms, system.text
FROM {0}.fact
JOIN {0}.value ON value.number = fact.value
JOIN {0}.value AS system ON system.number = fact.system
"""
_FACTS: Final = "CREATE TEMP VIEW facts (did, kind, value, at_ms, system) AS"
_VIEWS: Final = f"""
{GRAPH_VIEWS}
{_FACTS} {_FACTS_OF.format("main")} UNION ALL {_FACTS_OF.format("disk")};
CREATE TEMP VIEW open_files (did, began_ms, last_ms, begun) AS
SELECT did, began_ms, last_ms, begun FROM main.run WHERE did IS NOT NULL
UNION ALL
SELECT did, began_ms, last_ms, begun FROM disk.run
WHERE did IS NOT NULL AND run NOT IN (SELECT run FROM main.run);
"""  # noqa: S608 - texts of our own
_PARENTS: Final = """
SELECT DISTINCT did, value FROM facts
WHERE kind = 'parent' AND did IN (SELECT value FROM json_each(?)) ORDER BY value
"""
_CHILDREN: Final = """
SELECT DISTINCT value, did FROM facts
WHERE kind = 'parent' AND value IN (SELECT value FROM json_each(?)) ORDER BY did
"""
_JOB_RUNS: Final = """
SELECT did, kind, value FROM facts
WHERE kind IN ('job', 'input', 'output') AND did IN (SELECT value FROM json_each(?))
GROUP BY did, kind, value ORDER BY min(at_ms), value
"""
_OF_VALUE: Final = "SELECT DISTINCT did FROM facts WHERE value = ? AND kind = ?"
_WITH_NAME: Final = """
SELECT DISTINCT did FROM facts WHERE kind = 'input' AND value IN (
    SELECT text FROM main.value WHERE rtrim(text, '/') LIKE '%/' || ?1 ESCAPE '\\'
    UNION SELECT text FROM disk.value WHERE rtrim(text, '/') LIKE '%/' || ?1 ESCAPE '\\'
)
"""
_ENDLESS: Final = """
SELECT producer.value, count(DISTINCT did)
FROM open_files JOIN facts AS producer USING (did)
WHERE producer.kind = 'producer' AND NOT EXISTS (
    SELECT 1 FROM facts AS other
    WHERE other.value = producer.value AND other.kind = 'producer'
    AND other.did NOT IN (SELECT did FROM open_files WHERE open_files.last_ms < ?1)
)
GROUP BY producer.value HAVING count(DISTINCT did) >= ?2 ORDER BY producer.value
"""
_REPEATED: Final = """
SELECT
    content.value, content.did, max(content.system), min(content.at_ms),
    (SELECT max(CAST(value AS INTEGER)) FROM facts WHERE did = content.did AND kind = 'input_bytes'),
    EXISTS (SELECT 1 FROM facts WHERE did = content.did AND kind = 'forced')
FROM facts AS content
WHERE kind = 'fingerprint' AND value IN (
    SELECT value FROM facts WHERE kind = 'fingerprint' GROUP BY value HAVING min(did) <> max(did)
)
GROUP BY content.value, content.did ORDER BY content.value, min(content.at_ms)
"""
_KIND: Final = re.compile(r"^(CREATE (?:(?:VIRTUAL )?TABLE|INDEX|VIEW) )", re.MULTILINE)
_OPEN: Final = "SELECT began_ms, last_ms, begun FROM open_files ORDER BY last_ms, did"


class IndexReader:
    """What is known of files beside their records; made by `open`, and to be closed.

    Each method raises a `JournalError` if the database is damaged or cannot be read.

    Attributes:
        lack: a sentence about what its answers lack; None if they are whole.
        graph_waiting: how many entries its graph lacks, since they told more than there is room for.
        tail_entries: how many entries it has in memory since the index does not have them.
    """

    def __init__(self, connection: apsw.Connection, path: Path, opened: OpenedToRead[int] | None) -> None:
        self.lack: str | None = None
        self.graph_waiting = self.tail_entries = 0
        self._connection = connection
        connection.set_progress_handler(_goes_on, _STEPS_BETWEEN_CHECKS)
        self._opened = opened
        self._path = path
        self._file = _file_at(path)
        self._place = ("", 0)
        self._node = ""
        self._after = 0
        self._tail = Tables(connection, below="disk")
        self._graph_tail = GraphTables(connection, below="disk")

    @classmethod
    def open(cls, home: Path, journal: Journal) -> Self:
        """Open the index of a home, whether or not it has one yet, with the journal's entries since.

        Raises:
            JournalError: the journal or the index cannot be read.
        """
        path = home / INDEX_NAME
        connection = apsw.Connection(":memory:", flags=_OPEN_FLAGS)
        try:
            rules = tuple(agreed(journal).get("dataset_trimmers", TRIMMERS))
            reader = cls(connection, path, _make_tables(connection, path, rules))
            connection.execute("BEGIN")
            reader._node, reader._place = journal.node, place_in(connection, "disk")
            reader._after = place_in_journal(journal, *reader._place)
            reader._read_tail(journal)
        except apsw.Error as error:
            connection.close()
            raise _explained(path, error) from None
        except BaseException:
            connection.close()
            raise
        return reader

    def rest(self) -> None:
        """End the question: until `renew` this has no answers, and holds up nobody."""
        try:
            self._connection.execute("COMMIT")
        except apsw.Error as error:
            raise _explained(self._path, error) from None

    def renew(self, journal: Journal) -> bool:
        """Answer as of now again, with what the journal has accepted since.

        False if that takes a new reader: the index is another file, or has gone on.
        """
        is_live = self._opened is None or self._opened.is_live
        if not is_live or self._file != _file_at(self._path) or self._node != journal.node:
            return False
        try:
            self._connection.execute("BEGIN")
            if place_in(self._connection, "disk") != self._place:
                return False
            self._read_tail(journal)
        except apsw.Error as error:
            raise _explained(self._path, error) from None
        return True

    def _read_tail(self, journal: Journal) -> None:
        self.lack = self.lack or _lack_of(self._path, journal, self._after)
        while entries := journal.read(self._after, limit=_ENTRIES_AT_ONCE, max_bytes=_BYTES_AT_ONCE):
            check_budget()
            self._after = entries[-1].seq
            self.tail_entries += len(entries)
            self._tail.add(told_in(entries, system_name=""))
            self.graph_waiting += len(entries) - self._graph_tail.add(entries, size_max=_GRAPH_SIZE_MAX)

    @classmethod
    def of(cls, facts: Iterable[Fact], begun: Iterable[tuple[OpenRun, int, int]], folder: Path) -> Self:
        """A reader of what was published below a folder.

        Args:
            facts: all facts.
            begun: the open runs, each with when its first and its last entry was received.
            folder: the folder.
        """
        connection = apsw.Connection(":memory:", flags=_OPEN_FLAGS)
        _make_tables(connection, None)
        tables = Tables(connection)
        tables.put_facts(facts)
        for run, began_ms, last_ms in begun:
            tables.put_open(run, began_ms, last_ms)
        return cls(connection, folder, None)

    def close(self) -> None:
        """Release the database."""
        self._connection.close()
        if self._opened is not None:
            self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def parents_of(self, dids: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """The files that each file came from, beside those that records name."""
        return self._grouped(_PARENTS, dids)

    def children_of(self, dids: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """The files that came from each file, beside those whose records say so."""
        return self._grouped(_CHILDREN, dids)

    def job_runs(self, dids: Iterable[str]) -> dict[str, JobRun]:
        """Those of some dids that are runs and no files."""
        found: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        asked = (msgspec.json.encode(list(dids)).decode(),)
        for did, kind, value in cast("list[tuple[str, str, str]]", self._ask(_JOB_RUNS, asked)):
            found[did][kind].append(value)
        return {
            did: JobRun(told[Kind.JOB][-1], tuple(told[Kind.INPUT]), tuple(told[Kind.OUTPUT]))
            for did, told in found.items()
            if told[Kind.JOB] and all(told[Kind.JOB])
        }

    def dids_with_input(self, name: str) -> set[str]:
        """The files whose run read a dataset beyond what their records say.

        Args:
            name: its name as a record shows it or, without a slash, the last part of that.
        """
        if "/" in name:
            return self._dids(_OF_VALUE, (name, Kind.INPUT))
        pattern = name.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        return self._dids(_WITH_NAME, (pattern,))

    def dids_with_producer(self, uri: str) -> set[str]:
        """The files of which an event has exactly this producer."""
        return self._dids(_OF_VALUE, (uri, Kind.PRODUCER))

    def open_files(self) -> list[OpenFile]:
        """All files and runs that have begun and not ended, the longest silent first."""
        return [file for file, _ in self.open_runs()]

    def open_runs(self) -> list[tuple[OpenFile, OpenRun]]:
        """All files and runs that have begun and not ended, each with what its end has to repeat."""
        rows = cast("list[tuple[int, int, bytes]]", self._ask(_OPEN, ()))
        runs = [(OPEN_RUN.decode(begun), began_ms, last_ms) for began_ms, last_ms, begun in rows]
        return [(open_file_of(*run), run[0]) for run in runs]

    def endless_producers(self, silent_since_ms: int, *, least: int) -> list[tuple[str, int]]:
        """The producers of which no run has ended, though some have been silent for long.

        Args:
            silent_since_ms: when the last event of each of their runs was received before.
            least: how many runs of a producer make it worth a word.

        Returns:
            Each producer, with the number of its runs.
        """
        return cast("list[tuple[str, int]]", self._ask(_ENDLESS, (silent_since_ms, least)))

    def answer(self, question: Question[_Answer]) -> _Answer:
        """Answer a question about the graph; raises what its method `find` does."""
        return question.find(self._ask)

    def graph_lacks(self) -> list[str]:
        """A sentence about each thing that its answers about the graph lack."""
        found = [] if self.lack is None else [self.lack]
        if self.graph_waiting:
            waiting = counted(self.graph_waiting, "accepted entry is", "accepted entries are")
            later = "too many to answer now; try again later, or see `waybill status`"
            found.append(f"{waiting} not in the graph yet, {later}")
        return found + list_lacks(self._ask)

    def onward(self, ends: Iterable[FileEnd], as_of_ms: int | None) -> Onward:
        """What lies beyond the ends of files; see `waybill.lineage.graph.find_onward`."""
        return find_onward(self._ask, ends, as_of_ms)

    def repeated_contents(self) -> list[FileContent]:
        """The files of each content that several files have, by content; their names are in the records.

        The instant is when the first event of the file happened that told its content.
        """
        rows = cast("list[tuple[str, str, str, int, int | None, int]]", self._ask(_REPEATED, ()))
        return [
            FileContent(
                fingerprint=fingerprint,
                did=did,
                system_name=system,
                filename="",
                created_ms=at_ms,
                input_bytes=input_bytes,
                forced=bool(forced),
            )
            for fingerprint, did, system, at_ms, input_bytes, forced in rows
        ]

    def list_ahead(self) -> list[tuple[str, str, int, int]]:
        """The jobs and datasets of events that were timed after their receipt, the latest first.

        Each has the time of the event and of its receipt, in epoch microseconds.
        """
        rows = self._ask("SELECT * FROM all_ahead ORDER BY received_us DESC LIMIT 100", ())
        return cast("list[tuple[str, str, int, int]]", rows)

    def _dids(self, query: str, bindings: tuple[str, ...]) -> set[str]:
        return {cast("str", did) for (did,) in self._ask(query, bindings)}

    def _grouped(self, query: str, dids: Iterable[str]) -> dict[str, tuple[str, ...]]:
        found: defaultdict[str, list[str]] = defaultdict(list)
        for did, other in cast(
            "list[tuple[str, str]]", self._ask(query, (msgspec.json.encode(list(dids)).decode(),))
        ):
            found[did].append(other)
        return {did: tuple(others) for did, others in found.items()}

    def _ask(self, query: str, bindings: tuple[str | int, ...]) -> list[tuple[object, ...]]:
        check_budget()
        try:
            return cast("list[tuple[object, ...]]", self._connection.execute(query, bindings).fetchall())
        except apsw.Error as error:
            raise _explained(self._path, error) from None


def _goes_on() -> bool:
    """What SQLite asks now and then within a statement; raises if its question is given up."""
    check_budget()
    return False


def _file_at(path: Path) -> tuple[int, int] | None:
    """Which file is at a path. As long as it is open, no other one has its number."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _lack_of(path: Path, journal: Journal, after: int) -> str | None:
    """What the index lacks, if the journal has deleted entries that it had not read."""
    first = journal.first()
    if first is None or first.seq <= after + 1:
        return None
    return (
        f"{path} lacks what the journal has deleted since, so answers may lack further parents, inputs and "
        "open files; run `waybill flush`, which makes it again from the archive"
    )


def _explained(path: Path, error: apsw.Error) -> JournalError:
    what = f"{path} cannot be read ({reason_of(error)})"
    return JournalError(
        f"{what}; check the disk and run `waybill flush`, which makes it again if it is damaged"
    )


def _make_tables(
    connection: apsw.Connection, path: Path | None, rules: tuple[str, ...] = ()
) -> OpenedToRead[int] | None:
    """Make the tables in memory, and views of these and of an index's, if there is one of this format."""
    connection.execute(SCHEMA)
    opened = _attach(connection, path, rules)
    connection.execute(_VIEWS)
    return opened


def _attach(
    connection: apsw.Connection, path: Path | None, rules: tuple[str, ...]
) -> OpenedToRead[int] | None:
    if path is not None and path.exists():
        with contextlib.suppress(apsw.CantOpenError, apsw.NotADBError, apsw.CorruptError):
            opened = OpenedToRead(path, functools.partial(_attach_address, connection))
            if opened.used == FORMAT:
                return opened
            connection.execute("DETACH disk")
            opened.close()
    connection.execute("ATTACH ':memory:' AS disk")
    connection.execute(_KIND.sub(r"\1disk.", SCHEMA))
    set_trimmers(connection, rules, "disk")
    return None


def _attach_address(connection: apsw.Connection, address: str) -> int:
    """Attach an index; returns its format."""
    connection.execute("ATTACH ? AS disk", (address,))
    try:
        return cast("int", connection.execute("PRAGMA disk.user_version").get)
    except apsw.Error:
        connection.execute("DETACH disk")
        raise
