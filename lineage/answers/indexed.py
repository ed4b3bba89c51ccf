"""Answers from records and an index: of a root that is no home's, of what was exported, and within `home`."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from waybill.exporter import IncompleteError, Query
from waybill.exporter.query import (
    NO_TAIL,
    STATS_BY,
    SUMMED_COLUMNS,
    Conditions,
    check_text,
    check_texts,
    has_name,
    poison_note,
    scan,
    stats_of,
    summed,
    sums_of,
)
from waybill.facets import AnnotationRule, ProvenanceRecord, record_key
from waybill.facets.annotations import ALL
from waybill.facets.arrow import from_table
from waybill.facets.record import last_part
from waybill.transport import NotFoundError, Settings
from waybill.transport.counting import counted
from waybill.transport.root import check_root

from ..graph import Onward, shown
from .contents import find_duplicates
from .missing import Known, find_missing
from .naming import check_sink, settle_patterns, unknown_keys, unknown_names
from .opened import can_be_open, check_open, meets

if TYPE_CHECKING:
    from waybill.exporter.query import Access, Dimension, Kind, Stats
    from waybill.exporter.sources import Source
    from waybill.exporter.verification import Explanation
    from waybill.facets.merge_rule import RecordKey
    from waybill.transport import Journal
    from waybill.transport.journal import FileContent, Receipt

    from ..comparing import RunDiff
    from ..graph import Question
    from ..index import IndexReader, JobRun, OpenFile
    from ..journey import Journey
    from .receipts import ReceiptStatus

_Answer = TypeVar("_Answer")

_NAMED_MAX: Final = 3

_ANY: Final = AnnotationRule(frozenset({ALL}))
"""Each home that files below a root has a rule of its own."""


class FileAnswers:
    """Answers questions about the files of a root, from records and an index; see `Lineage`.

    Args:
        root: the root.
        access: finds and opens its files.
        open_index: opens what is known of files beside their records, for one question.
        settings: those of the home, or the user's; None: those of the environment and of files.

    Attributes:
        notes: sentences about what the answers so far lack, and what stands beside them.
        unsettled: the keys of the records in the answers so far that may still change.
        unended: the dids of the files in the answers so far about a `missing_sink` that have no record yet.
    """

    def __init__(
        self,
        root: Path,
        access: Access,
        open_index: Callable[[], AbstractContextManager[IndexReader]],
        settings: Settings | None = None,
    ) -> None:
        self.notes: dict[str, None] = {}
        self.unsettled: set[RecordKey] = set()
        self.unended: set[str] = set()
        self._root = root
        self._access = access
        self._open_index = open_index
        self._settings = settings or Settings.load({}, origin="Lineage")
        self._journal: Journal | None = None
        self._rule = _ANY
        self._index: IndexReader | None = None
        self._tail = NO_TAIL

    def tables(
        self,
        query: Query,
        columns: Sequence[str] = ProvenanceRecord.__struct_fields__,
        *,
        summed_by: Collection[Dimension] | None = None,
    ) -> Iterator[Any]:
        """The records that answer a query; see `Lineage`.

        With `summed_by`, sums of them as `waybill.exporter.query.summed` gives them.
        """
        self._check()
        with self._reading() as index:
            query = self._settled(query, index)
            is_empty = True
            for table in self._answered(query, columns, summed_by, index):
                is_empty = is_empty and not table.num_rows
                yield table
            self._note(query, index, is_empty=is_empty)

    def settle(self, query: Query) -> Query:
        """The query with its names taken as they are meant, so that no later question has to settle them."""
        self._check()
        with self._reading() as index:
            return self._settled(query, index)

    def stats(self, query: Query) -> Stats:
        """The number of records that answer a query, by kind; see `Lineage`."""
        stats = stats_of(self.tables(query, summed_by=STATS_BY))
        stats.unended_files = self.count_open(query)
        return stats

    def job_runs(
        self, told: Iterable[ProvenanceRecord | OpenFile], query: Query | None = None
    ) -> dict[str, JobRun]:
        """By did, those of some records or open files that are of runs and of no files.

        If they answer a query for a filename that datasets have which these runs read, `notes` says so.
        """
        dids = {one.did for one in told if one.filename in {None, last_part(one.data_source)}}
        if not dids:
            return {}
        with self._reading() as index:
            runs = index.job_runs(dids)
        if query is None or query.filename is None:
            return runs
        names = ((name for one in run.inputs for name in (one, last_part(one))) for run in runs.values())
        if matched := sum(any(has_name(query, "filename", name) for name in some) for some in names):
            told_of = counted(matched, "of these is a run", "of these are runs")
            self.notes[f"{told_of} that read a dataset of this name, and no file of it"] = None
        return runs

    def count_open(self, query: Query) -> int:
        """How many files and runs that have not ended meet a query, of which no answer has a record.

        With `missing_sink`, the query has to be answered before.
        """
        if query.missing_sink is not None:
            return len(self.unended)
        with self._reading() as index:
            return len(self._open(self._settled(query, index), index))

    def sums(self, by: Sequence[Dimension], query: Query) -> dict[Kind, int]:
        """The number of records that answer a query, of each kind; see `Lineage`."""
        return sums_of(self.tables(query, summed_by=by), by)

    def open_files(self, query: Query) -> list[OpenFile]:
        """The files and runs that have begun and not ended and meet a query; see `Lineage`."""
        check_open(query)
        self._check()
        with self._reading() as index:
            query = self._settled(query, index)
            if query.missing_sink is None:
                found = self._open(query, index)
                if not found:
                    self._is_job(query, index)
                return found
            for _ in self._answered(query, ("did",), None, index):
                pass  # it finds out which are missing
            return [file for file in index.open_files() if file.did in self.unended]

    def duplicates(self) -> list[list[FileContent]]:
        """The files of each content that several files have; see `Lineage`."""
        self._check()
        with self._reading() as index:
            found = find_duplicates(index, self._ask_beside)
        self._note_lacks()
        return found

    def trace(
        self,
        did: str,
        *,
        up: bool,
        down: bool,
        depth: int | None,
        as_of_ms: int | None = None,
        is_opened: Callable[[str], bool] = lambda _: False,
        on_table: Callable[[Query, Any], object] = lambda *_: None,
        on_batch: Callable[[], object] = lambda: None,
    ) -> Journey:
        """The journey of a file; see `Lineage`.

        Without `as_of_ms`, the files for which `is_opened` are followed for a generation each way, too.
        `on_table` is called with each table that is read and the question that it answers, and `on_batch`
        after each batch of entries; both may raise to give up.
        """
        from ..tracing import trace, trace_as_of  # which loads what reads the archive

        check_text("did", did)
        self._check()

        def ask(query: Query, columns: Sequence[str]) -> Iterator[Any]:
            for table in self._ask(query, columns, is_ordered=False):
                on_table(query, table)
                yield table

        follow = {"up": up, "down": down, "depth": depth}
        with self._reading() as index:
            journey = trace(ask, did, **follow, is_opened=is_opened, kin=index)  # type: ignore[arg-type]  # mypy: one type
            onward = index.onward(journey.files.list_ends(), as_of_ms) if down else Onward()
            if down:
                self.notes.update(dict.fromkeys(index.graph_lacks()))
        self._note_lacks()
        if as_of_ms is not None:
            then = (journey, as_of_ms, self._root, self._journal, self._settings)
            journey = trace_as_of(*then, **follow, on_batch=on_batch)  # type: ignore[arg-type]  # as above
        return msgspec.structs.replace(journey, onward=onward)

    def children(self, dids: Collection[str]) -> dict[str, set[str]]:
        """By file, the dids of those that came from it directly; one that none came from is left out.

        Raises:
            IncompleteError, TooManyError, BacklogError, RootError, JournalError, OSError: as `tables` does.
        """
        query = Query(parent_dids=frozenset(dids))
        self._check()
        with self._reading() as index:
            found = {did: set(some) for did, some in index.children_of(dids).items()}
            for table in self._ask_beside(query, ("parent_did", "did")):
                for parent, child in zip(*table.to_pydict().values(), strict=True):
                    found.setdefault(parent, set()).add(child)
            for file in index.open_files():
                if file.parent_did is not None and file.parent_did in dids:
                    found.setdefault(file.parent_did, set()).add(file.did)
        self._note_lacks()
        return found

    def explain(self, did: str) -> Explanation:
        """The proof behind a file's records; see `Lineage`."""
        from waybill.exporter import Wanted, explain
        from waybill.exporter.rebuilding import rule_for

        wanted = Wanted(system_name=self._settings.system_name, rule=rule_for(self._settings, self._root))
        return explain(did, self._stored(), self._root, wanted)

    def diff(self, first: str, second: str) -> RunDiff:
        """In which two runs differ; see `Lineage`."""
        from ..comparing import compare_runs

        return compare_runs(first, second, self._stored())

    def _stored(self) -> list[Source]:
        """Where the events are stored: the archive, and the journal if there is one."""
        from waybill.exporter.names import EVENTS
        from waybill.exporter.sources import EventsSource, JournalSource

        self._check()
        archive = [EventsSource(self._root)] if (self._root / EVENTS).is_dir() else []
        return [*archive, *([JournalSource(self._journal.home)] if self._journal else [])]

    def locate(self, receipt: Receipt) -> ReceiptStatus | None:
        """Where an acknowledged entry is; None if the journal never had it, or there are only files.

        Raises:
            JournalError, RootError, OSError: the journal or the root cannot be read.
        """
        from .receipts import receipt_status  # which loads what reads files

        return None if self._journal is None else receipt_status(self._journal, self._root, receipt)

    def answer(self, question: Question[_Answer]) -> _Answer:
        """Raise a `NotFoundError`: the graph is only in the home that filed the records."""
        about = getattr(question, "name", "datasets and jobs")
        raise NotFoundError(f"{self._root} has only records; ask the home that filed them about {about!r}")

    def _ask(
        self,
        query: Query,
        columns: Sequence[str] = ProvenanceRecord.__struct_fields__,
        *,
        summed_by: Collection[Dimension] | None = None,
        is_beside: bool = False,
        is_ordered: bool = True,
    ) -> Iterator[Any]:
        """The records that answer a query which records alone can answer.

        With `is_beside` they only help to answer, so it does not matter whether they may still change. They
        are in the order of the query only if they are to be `is_ordered`.
        """
        if not is_beside and self._tail.unsettled.num_rows:
            unsettled = Conditions(query).filter(self._tail.unsettled)
            self.unsettled.update(map(record_key, from_table(unsettled)))
        yield from scan(
            self._root,
            query,
            tail=self._tail,
            columns=columns,
            summed_by=summed_by,
            access=self._access,
            is_ordered=is_ordered,
        )

    def _check(self) -> None:
        """Raise a `RootError` if the folder is not the root of the home."""
        if self._journal is not None:
            check_root(self._journal, self._root)

    def _note_lacks(self) -> None:
        """Note what the answer lacks, after all that was read for it."""
        if self._access.problem is not None:
            self.notes[self._access.problem] = None
        # An entry that was set aside meanwhile became poison when the cursor passed it, so this comes last.
        if self._journal is not None and (poison := poison_note(self._journal)) is not None:
            self.notes[poison] = None

    @contextlib.contextmanager
    def _reading(self) -> Iterator[IndexReader]:
        """The index, the same for all questions that one answer takes."""
        if self._index is not None:
            yield self._index
            return
        with self._open_index() as index:
            if index.lack is not None:
                self.notes[index.lack] = None
            self._index = index
            try:
                yield index
            finally:
                self._index = None

    def _answered(
        self,
        query: Query,
        columns: Sequence[str],
        summed_by: Collection[Dimension] | None,
        index: IndexReader,
    ) -> Iterator[Any]:
        sink = query.missing_sink
        if sink is None:
            return self._ask(query, columns, summed_by=summed_by)
        arrived = msgspec.structs.replace(query, missing_sink=None)
        opened = [file for file in self._open(arrived, index) if file.filename is not None]
        missing = find_missing(
            Known(
                self._ask,
                self._ask_beside,
                index.children_of,
                check_sink=lambda: check_sink(query, self._ask_beside),
            ),
            query,
            columns if summed_by is None else SUMMED_COLUMNS,
            began_ms={file.did: file.began_ms for file in opened},
            unended=self.unended,
        )
        return missing if summed_by is None else (summed(table, summed_by) for table in missing)

    def _settled(self, query: Query, index: IndexReader) -> Query:
        """The query as records and open files can answer it: with the dids that only the index finds."""
        check_texts(query)
        places = {field: getattr(query, field) for field in ("data_source", "data_sink", "missing_sink")}
        named = (query.filename, query.input_dataset, query.producer, *places.values())
        has_names = any(name is not None for name in named) or query.not_data_sinks
        if not has_names and not any("=" in value for value in query.annotations.values()):
            return query

        def is_other_name(name: str) -> bool:
            is_open = any(file.filename == name for file in index.open_files())
            return is_open or bool(index.dids_with_input(name))

        others = {
            field: self._names_of(name, index) - {name}
            for field, name in places.items()
            if name is not None and not query.is_pattern(field)
        }
        query = settle_patterns(query, self._ask_beside, is_other_name)
        wanted, with_name = query.dids, query.filename_dids
        if query.input_dataset is not None:
            names = self._names_of(query.input_dataset, index)
            reading = frozenset(did for name in names for did in index.dids_with_input(name))
            if not reading:
                says = f"no run is known that read {query.input_dataset!r}; give the name that records show"
                self.notes[says] = None
            wanted = reading if wanted is None else wanted & reading
        if query.producer is not None:
            produced = frozenset(index.dids_with_producer(query.producer))
            wanted = produced if wanted is None else wanted & produced
        if query.filename is not None:
            with_name |= frozenset(index.dids_with_input(query.filename))
        return msgspec.structs.replace(
            query,
            input_dataset=None,
            producer=None,
            dids=wanted,
            filename_dids=with_name,
            not_data_sinks=tuple(name for one in query.not_data_sinks for name in self._names_of(one, index)),
            other_names=query.other_names | others,
        )

    def _names_of(self, dataset: str, index: IndexReader) -> frozenset[str]:
        """The names of a dataset in records: what was given, and what the graph knows."""
        from ..graph import OfNames

        names = {dataset}
        with contextlib.suppress(NotFoundError):
            names.update(shown(one) for one in index.answer(OfNames(dataset)).names)
        return frozenset(names)

    def _open(self, query: Query, index: IndexReader) -> list[OpenFile]:
        if not can_be_open(query):
            return []
        return [file for file in index.open_files() if meets(file, query, self._rule)]

    def _ask_beside(
        self,
        query: Query,
        columns: Sequence[str] = ProvenanceRecord.__struct_fields__,
        *,
        summed_by: Collection[Dimension] | None = None,
    ) -> Iterator[Any]:
        return self._ask(query, columns, summed_by=summed_by, is_beside=True, is_ordered=False)

    def _is_job(self, query: Query, index: IndexReader) -> bool:
        """Whether the name of a file that nothing has is that of a job, which is noted."""
        if query.filename is None or query.is_pattern("filename"):
            return False
        from ..graph import OfDependencies

        try:
            job = shown(index.answer(OfDependencies(f"job:{query.filename}", 0, 0)).node)
        except NotFoundError:
            return False
        says = f"no file has the name {query.filename!r}; it is that of a job"
        self.notes[f"{says}: `waybill lineage {shlex.quote(job)}` shows how it ran last"] = None
        return True

    def _note(self, query: Query, index: IndexReader, *, is_empty: bool) -> None:
        """Note what stands beside an answer, and why it may be empty."""
        if self.unended:
            self.notes[f"{counted(len(self.unended), 'more file has', 'more files have')} not ended"] = None
        is_narrow = any((query.did, query.parent_did, query.filename, query.data_source))
        opened = self._open(query, index) if is_narrow and query.missing_sink is None else []
        if opened:
            names = ", ".join(file.filename or file.did for file in opened[:_NAMED_MAX])
            more = len(opened) - _NAMED_MAX
            told = f"{names} and {more:,} more" if more > 0 else names
            self.notes[f"{counted(len(opened), 'file has', 'files have')} begun and not ended: {told}"] = None
        dropped = {key for key in query.annotations if not self._rule.kept({key: ""})}
        for key in sorted(dropped):
            self.notes[
                f"records have the annotation {key!r} only if provenance_annotations_allowed has it"
            ] = None
        if is_empty and not opened:
            # Where some file cannot be read, nobody can say that no record has a name.
            with contextlib.suppress(IncompleteError):
                named = msgspec.structs.replace(query, filename=None) if self._is_job(query, index) else query
                self.notes.update(dict.fromkeys(unknown_names(named, self._ask_beside)))
                asked = query.annotations.keys() - dropped
                self.notes.update(dict.fromkeys(unknown_keys(asked, self._ask_beside)))
        self._note_lacks()
