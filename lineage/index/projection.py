"""The index as a projection of the journal.

The index has its own place in the sequence of entries, which changes together with its tables. The journal's
cursor follows it, and only tells which entries may be removed. Entries that the journal has removed, which a
new index lacks, are read from the archive.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

import apsw

from waybill.transport.errors import RootError, reason_of
from waybill.transport.journal import Watch
from waybill.transport.permissions import file_mode
from waybill.transport.root import check_root
from waybill.transport.runner import Step

from ..analyzers import list_facets, load_analyzers
from ..graph import GraphTables, set_trimmers, trimmers_in
from .analysis import Analysis
from .facts import told_in
from .publishing import Publisher
from .tables import DAY_MS, FORMAT, INDEX, INDEX_NAME, SCHEMA, Tables, place_in, place_in_journal, set_place

if TYPE_CHECKING:
    from waybill.exporter.names import RawName
    from waybill.transport.config import Settings
    from waybill.transport.journal import Entry, Journal

LINGER_S: Final = 1.0
"""After a batch, new entries wait this long for others, so that there are few fsyncs."""

_ENTRIES_MAX: Final = 20_000
_BYTES_MAX: Final = 32 * 2**20
_BUSY_TIMEOUT_MS: Final = 30_000
_RETRY_S: Final = 5.0
_LOOK_S: Final = 2.0
"""So often it looks whether its file is still there."""
_LATE_DAYS: Final = 7
"""So long after the end of a run an event that came too late does not open it again."""

log = logging.getLogger("waybill.runner")


def open_index(journal: Journal, settings: Settings) -> Index:
    """What keeps the index of a home up to date."""
    return Index(journal, settings)


class Index:
    """Keeps the index of a home up to date."""

    name = INDEX
    stores = None

    def __init__(
        self,
        journal: Journal,
        settings: Settings,
        *,
        linger_s: float = LINGER_S,
    ) -> None:
        self._journal = journal
        self._settings = settings
        self._path = journal.home / INDEX_NAME
        self._watch = Watch(self._path)
        self._linger_s = linger_s
        self._clock = journal.clock
        self._wrote_s = float("-inf")
        self._forgot_ms = 0
        self._connection: apsw.Connection | None = None
        self._graph: GraphTables | None = None
        self._analysis = Analysis(journal.clock)
        self._publisher: Publisher | None = None
        self._is_flushing = False
        self._place = 0

    def step(self) -> Step:
        """Add one batch of entries."""
        try:
            connection = self._connection or self._open()
            if (trouble := self._watch.trouble()) is not None:
                raise apsw.NotADBError(trouble)  # noqa: TRY301 - it is made again, too
            return self._step(connection)
        except (apsw.NotADBError, apsw.CorruptError, apsw.SchemaChangeError) as error:
            log.warning("%s cannot be used (%s), so it is made again", self._path, error)
            self._remove()
            return Step(applied=1)
        except apsw.Error as error:
            self.close()
            return Step(
                retry_s=_RETRY_S,
                problem=f"{self._path} cannot be written ({reason_of(error)}); free space there or fix the "
                "disk, and it continues: nothing that was acknowledged is lost",
            )
        except RootError as error:
            return Step(retry_s=_RETRY_S, problem=str(error))
        except OSError as error:
            what = f"{error.filename} cannot be written ({reason_of(error)}); correct that, and it continues"
            return Step(retry_s=_RETRY_S, problem=what)
        except BaseException:
            self.close()
            raise

    def pending(self) -> int:
        """The entries that are not in the index yet."""
        return self._journal.last_seq() - self._journal.cursor(INDEX)

    def finish(self) -> None:
        """Have the analyzers read what waits for them; what was added is durable."""
        if self._connection is not None and self._graph is not None:
            self._analysis.finish(self._connection, self._graph)

    def close(self) -> None:
        """Release the database; the next step opens it again."""
        self._analysis.close()
        if self._connection is not None:
            self._connection.close()
            self._connection = self._graph = None

    def _remove(self) -> None:
        self.close()
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(INDEX_NAME + suffix).unlink(missing_ok=True)

    def _open(self) -> apsw.Connection:
        connection = apsw.Connection(str(self._path))
        try:
            self._path.chmod(file_mode(self._path.parent))
            connection.set_busy_timeout(_BUSY_TIMEOUT_MS)
            # The log stays beside the database: reading needs no right to make files then.
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.pragma("journal_mode", "wal")
            connection.pragma("synchronous", "FULL")
            number = connection.pragma("user_version")
            if not number:
                with connection:
                    connection.execute(SCHEMA)
                    set_trimmers(connection, self._settings.dataset_trimmers)
                    connection.pragma("user_version", FORMAT)
            elif number != FORMAT:
                raise apsw.SchemaChangeError(f"its format is {number}")  # noqa: TRY301 - closes it, too
            if trimmers_in(connection) != self._settings.dataset_trimmers:
                raise apsw.SchemaChangeError("dataset_trimmers has changed")  # noqa: TRY301 - as above
            self._place = place_in_journal(self._journal, *place_in(connection))
            if self._journal.cursor(INDEX) != self._place:
                self._journal.commit(INDEX, cursor=self._place)
            self._watch.opened()
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._publisher = Publisher(connection, self._journal, self._settings)
        return connection

    def _step(self, connection: apsw.Connection) -> Step:
        if self._is_flushing:  # publishing failed
            self._move_cursor()
        waiting = self._journal.last_seq() - self._place
        linger_s = self._wrote_s + self._linger_s - self._clock.monotonic_s()
        if waiting <= 0:
            self._forget(connection)
        self._graph = self._graph or self._open_graph(connection)
        analysis_s = self._analysis.step(connection, self._graph)
        if waiting <= 0:
            due_s = self._publish()
            if due_s == 0.0:  # a day was published, and another one is due
                return Step(applied=1)
            return Step(retry_s=min(due for due in (analysis_s, due_s, _LOOK_S) if due is not None))
        if waiting < _ENTRIES_MAX and linger_s > 0 and self._journal.last_mark() <= self._place:
            self._publish()
            return Step(retry_s=linger_s if analysis_s is None else min(linger_s, analysis_s), gathers=True)
        entries, upto = self._next()
        # The power must not take entries from the journal that the index has: others would get their numbers.
        self._journal.sync_all()
        with connection:
            told = told_in(entries, system_name=self._settings.system_name)
            Tables(connection).add(told)
            self._graph.add(entries)
            set_place(connection, self._journal.nodes()[-1].name, upto)
        self._place, self._wrote_s = upto, self._clock.monotonic_s()
        self._is_flushing = any(entry.is_flush for entry in entries)
        self._move_cursor()
        return Step(applied=len(entries))

    def _open_graph(self, connection: apsw.Connection) -> GraphTables:
        return GraphTables(connection, analyzed=list_facets(load_analyzers()[0]))

    def _move_cursor(self) -> None:
        """Move the cursor to the place; a flush ends there, so what it asks for is published first."""
        if self._is_flushing:
            self._publish(all_now=True)
            self._is_flushing = False
        # Not fsynced by itself: a cursor that is behind the place is corrected when the index is opened.
        self._journal.commit(INDEX, cursor=self._place, durable=False)

    def _publish(self, *, all_now: bool = False) -> float | None:
        """Publish what is due; return how many seconds later the next day is, None if none has changed."""
        if self._publisher is None or not self._settings.provenance_enabled:
            return None
        try:
            check_root(self._journal, self._settings.root)
        except RootError:  # the layout reports it
            return _RETRY_S
        return self._publisher.publish(all_now=all_now)

    def _forget(self, connection: apsw.Connection) -> None:
        """Forget what has become old, first and once a day, when every entry is in the index.

        What analyzers could not read by accident is read again then.
        """
        now_ms = self._clock.now_ms()
        if now_ms - self._forgot_ms >= DAY_MS:
            self._forgot_ms = now_ms
            with connection:
                self._open_graph(connection).analyses.try_again()
                tables = Tables(connection)
                tables.forget_ends(now_ms - _LATE_DAYS * DAY_MS)
                if self._settings.lineage_retain_days is not None:
                    before_ms = now_ms - int(self._settings.lineage_retain_days * DAY_MS)
                    tables.forget(before_ms)
                    self._open_graph(connection).forget(before_ms)
                    self._graph = None
                    self._journal.forget_contents(before_ms)

    def _next(self) -> tuple[list[Entry], int]:
        """The next entries, and the last number that they cover."""
        entries = self._journal.feed(INDEX, self._place, limit=_ENTRIES_MAX, max_bytes=_BYTES_MAX)
        if entries[0].seq > self._place + 1:
            check_root(self._journal, self._settings.root)
            for raw, path in self._archived(self._place, entries[0].seq):
                return [one for one in _entries_of(path) if self._place < one.seq <= raw.last], raw.last
        return entries, entries[-1].seq

    def _archived(self, after: int, before: int) -> list[tuple[RawName, Path]]:
        """The archive's files with entries of this journal between two numbers, in order."""
        from waybill.exporter.archive import archived_files  # loads pyarrow, and is seldom needed

        nodes = {node.name for node in self._journal.nodes()}
        found = [
            (raw, path)
            for raw, path in archived_files(self._settings.root)
            if raw.node in nodes and raw.last > after and raw.first < before
        ]
        return sorted(found, key=lambda one: (one[0].first, one[0].last))


def _entries_of(path: Path) -> list[Entry]:
    """The entries of a file of the archive; none if it cannot be read, which `waybill verify` reports."""
    from waybill.exporter.archive import read_entries
    from waybill.exporter.parquet import DAMAGED

    try:
        return [entry for batch in read_entries(path) for entry in batch]
    except DAMAGED as error:
        log.warning("the index lacks what %s holds, which cannot be read: %s", path, error)
        return []
