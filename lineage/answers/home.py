"""Answers of a home: from its files, its index, and what its journal has accepted since."""

from __future__ import annotations

import contextlib
import functools
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waybill.exporter import Query, reading
from waybill.exporter.query import Begun, answer, poison_note, read_unsettled
from waybill.facets import ProvenanceRecord, record_key
from waybill.transport.counting import counted
from waybill.transport.root import check_root

from ..index import IndexReader
from ..kin import by_records
from .counting import Counting
from .naming import check_missing_sink, settle_patterns, unknown_keys, unknown_names
from .opened import can_be_open, meets

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from waybill.exporter.query import Access, Dimension
    from waybill.exporter.reading import Asker
    from waybill.facets.merge_rule import RecordKey
    from waybill.transport.config import Settings
    from waybill.transport.journal import FileContent, Journal

    from ..index import OpenFile
    from ..journey import Journey

_NAMED_MAX: Final = 3
_TOO_MANY: Final = "incomplete: too many runs are not filed yet"


class HomeAnswers(Counting):
    """Answers questions about the files of a home; see `Answers`.

    Args:
        journal: its journal.
        settings: its agreed settings.
        access: finds and opens its files.
        asker: who asks.
        backlogs_max: how often the entries that are not in files may be read for one question.
    """

    knows_open = True

    def __init__(
        self,
        journal: Journal,
        settings: Settings,
        access: Access,
        asker: Asker,
        *,
        backlogs_max: int | None = None,
    ) -> None:
        self.notes: dict[str, None] = {}
        self.unsettled: set[RecordKey] = set()
        self._journal = journal
        self._settings = settings
        self._access = access
        self._asker = asker
        self._backlogs_max = backlogs_max
        self._index: IndexReader | None = None

    def tables(
        self,
        query: Query,
        columns: Sequence[str] = ProvenanceRecord.__struct_fields__,
        *,
        summed_by: Collection[Dimension] | None = None,
    ) -> Iterator[Any]:
        """The records that answer a query; see `Answers`."""
        query = reading.allow(self._asker, query)
        check_root(self._journal, self._settings.root)
        with self._reading() as index:
            check_missing_sink(query, self._ask_beside)
            query = self._settled(query, index)
            begun = Begun(self._begun_ms(query, index), set())
            is_empty = True
            for table in self._ask(query, columns, summed_by=summed_by, begun=begun):
                is_empty = is_empty and not table.num_rows
                yield table
            self._note(query, index, begun, is_empty=is_empty)

    def open_files(self, query: Query) -> list[OpenFile]:
        """The files and runs that have begun and not ended and meet a query; see `Answers`."""
        query = reading.allow(self._asker, query)
        with self._reading() as index:
            check_missing_sink(query, self._ask_beside)
            query = self._settled(query, index)
            if query.missing_sink is None:
                return self._open(query, index)
            begun = Begun(self._begun_ms(query, index), set())
            for _ in self._ask(query, ("did",), begun=begun):
                pass  # it finds out which are missing
            return [file for file in index.open_files() if file.did in begun.missing]

    def duplicates(self) -> list[list[FileContent]]:
        """The files of each content that several files have."""
        reading.allow(self._asker, "duplicates")
        return list(self._journal.repeated_contents())

    def trace(
        self,
        did: str,
        *,
        up: bool,
        down: bool,
        depth: int | None,
        as_of_ms: int | None = None,
        on_table: Callable[[Any], object] = lambda _: None,
        on_batch: Callable[[], object] = lambda: None,
    ) -> Journey:
        """The journey of a file; see `Answers`.

        `on_table` is called with each table of whole records that is read, and `on_batch` after each batch of
        entries; both may raise to give up.
        """
        from ..tracing import trace, trace_as_of  # which loads what reads the archive

        reading.allow(self._asker, Query(did=did))
        check_root(self._journal, self._settings.root)

        def ask(query: Query, columns: Sequence[str]) -> Iterator[Any]:
            for table in self._ask(query, columns):
                on_table(table)
                yield table

        with self._reading() as index:
            journey = trace(ask, did, up=up, down=down, depth=depth, kin=index)
        self._note_what_lacks()
        if as_of_ms is None:
            return journey
        then = functools.partial(
            trace_as_of, journey, as_of_ms, self._settings.root, self._journal, self._settings
        )
        return then(up=up, down=down, depth=depth, on_batch=on_batch)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[IndexReader]:
        """The index, the same for all questions that one answer takes."""
        if self._index is not None:
            yield self._index
            return
        with IndexReader.open(self._journal.home, self._journal) as index:
            if index.lack is not None:
                self.notes[index.lack] = None
            self._index = index
            try:
                yield index
            finally:
                self._index = None

    def _settled(self, query: Query, index: IndexReader) -> Query:
        """The query as records can answer it."""

        def is_other_name(name: str) -> bool:
            is_open = any(file.filename == name for file in index.open_files())
            return is_open or bool(index.dids_with_input(name))

        return by_records(settle_patterns(query, self._ask_beside, is_other_name), index)

    def _begun_ms(self, query: Query, index: IndexReader) -> dict[str, int]:
        """When the open files began that may be missing at a sink."""
        if query.missing_sink is None:
            return {}
        arrived = msgspec.structs.replace(query, missing_sink=None)
        return {file.did: file.began_ms for file in self._open(arrived, index) if file.filename is not None}

    def _open(self, query: Query, index: IndexReader) -> list[OpenFile]:
        if not can_be_open(query):
            return []
        rule = self._settings.annotation_rule
        return [file for file in index.open_files() if meets(file, query, rule)]

    def _ask(
        self,
        query: Query,
        columns: Sequence[str] = ProvenanceRecord.__struct_fields__,
        *,
        summed_by: Collection[Dimension] | None = None,
        begun: Begun | None = None,
        is_beside: bool = False,
    ) -> Iterator[Any]:
        # This comes first: records that are filed meanwhile are then found in the files.
        runs = read_unsettled(self._journal, self._settings, query, now_ms=time.time_ns() // 1_000_000)
        if not runs.is_whole:
            is_on = self._settings.provenance_enabled
            todo = "try again later" if is_on else "turn provenance_enabled on"
            self.notes[f"{_TOO_MANY}; {todo}"] = None
        if not is_beside:
            self.unsettled.update(map(record_key, runs.open))
        with self._reading() as index:
            yield from answer(
                self._journal,
                self._settings,
                query,
                columns=columns,
                summed_by=summed_by,
                derived=[*runs.settled, *runs.open],
                access=self._access,
                below=index.children_of,
                begun=begun or Begun({}, set()),
                backlogs_max=self._backlogs_max,
            )

    def _ask_beside(
        self,
        query: Query,
        columns: Sequence[str] = ProvenanceRecord.__struct_fields__,
        *,
        summed_by: Collection[Dimension] | None = None,
    ) -> Iterator[Any]:
        """Ask for what helps to answer; whether its records may still change does not matter."""
        return self._ask(query, columns, summed_by=summed_by, is_beside=True)

    def _note(self, query: Query, index: IndexReader, begun: Begun, *, is_empty: bool) -> None:
        """Note what stands beside an answer, and why it may be empty."""
        if begun.missing:
            self.notes[f"{counted(len(begun.missing), 'more file has', 'more files have')} not ended"] = None
        is_narrow = any((query.did, query.parent_did, query.filename, query.data_source))
        opened = self._open(query, index) if is_narrow and query.missing_sink is None else []
        if opened:
            names = ", ".join(file.filename or file.did for file in opened[:_NAMED_MAX])
            more = len(opened) - _NAMED_MAX
            told = f"{names} and {more:,} more" if more > 0 else names
            self.notes[f"{counted(len(opened), 'file has', 'files have')} begun and not ended: {told}"] = None
        dropped = {key for key in query.annotations if not self._settings.annotation_rule.kept({key: ""})}
        for key in sorted(dropped):
            self.notes[
                f"records have the annotation {key!r} only if provenance_annotations_allowed has it"
            ] = None
        if is_empty and not opened:
            self.notes.update(dict.fromkeys(unknown_names(query, self._ask_beside)))
            self.notes.update(
                dict.fromkeys(unknown_keys(query.annotations.keys() - dropped, self._ask_beside))
            )
        self._note_what_lacks()

    def _note_what_lacks(self) -> None:
        """Note what the answer lacks, after all that was read for it."""
        if self._access.problem is not None:
            self.notes[self._access.problem] = None
        # An entry that was set aside meanwhile became poison when the cursor passed it, so this comes last.
        if (poison := poison_note(self._journal)) is not None:
            self.notes[poison] = None
