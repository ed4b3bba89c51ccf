"""`Lineage`: the door to all answers about the files of a home, of a root, or of what was exported."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from waybill.exporter import Query
from waybill.exporter.keys import Keys
from waybill.exporter.object_stores import is_url
from waybill.exporter.query import Dimension, InvalidQueryError, Stats, TailReader
from waybill.facets import ProvenanceRecord
from waybill.facets.arrow import from_table
from waybill.transport import Journal, NotFoundError, Settings
from waybill.transport.config import obey
from waybill.transport.journal import Receipt

from .answers import FileAnswers, HomeAnswers
from .graph import (
    ALL,
    OfAnalyzers,
    OfDependencies,
    OfDuplicates,
    OfImpact,
    OfNames,
    OfOrigins,
    OfRuns,
    OfSchemaChanges,
    OfSearch,
    OfStale,
    OfUnused,
    OfWhole,
)
from .index import FolderRelations, Published
from .records import Records

if TYPE_CHECKING:
    from waybill.exporter.query import Access
    from waybill.exporter.verification import Explanation
    from waybill.transport.journal import FileContent

    from .answers import Answers, ReceiptStatus
    from .comparing import RunDiff
    from .file_table import JourneyFile
    from .graph import (
        AnalyzerList,
        Dependencies,
        Duplicate,
        Impact,
        ListedDataset,
        Node,
        Origins,
        Question,
        ReachedNode,
        RecentRun,
        RunStateName,
        SchemaChange,
        SearchResult,
    )
    from .index import OpenFile
    from .journey import Journey

log = logging.getLogger("waybill.lineage")

_Answer = TypeVar("_Answer")

OpenAnswers = Callable[[], AbstractContextManager["Answers"]]
"""Opens what answers one question."""


class Lineage:
    """The records of a home, of a root, of a destination of exports or of a collector, to read only.

    Each question sees every record that was accepted before it, whether or not it is in a file yet, and
    whether or not it may still change, as `waybill find` does. What an answer lacks, and which files have not
    ended that it is about, is logged as a warning; `Records.notes` has it, too.
    """

    def __init__(self, open_answers: OpenAnswers) -> None:
        self._open_answers = open_answers

    @classmethod
    def open(cls, place: str | os.PathLike[str] | None = None) -> Lineage:
        """Open a home, a root that is no home, a destination of exports, or a collector.

        Over HTTP, each method also raises `CollectorReadError`, and a question about a set of dids is one of
        these errors. The key is that of the setting `marquez_api_key`, `OPENLINEAGE_API_KEY` in the
        environment; it needs the role read.

        Of a destination, the files are asked that its manifests list. Each method also raises `NotFoundError`
        if nothing was exported there, and `SourceError` if the store does not answer.

        Args:
            place: its path; the URL of a destination, ``s3://…``, ``gs://…``, ``az://…`` or ``file://…``; the
                URL of a collector; None: the home of the settings, as the command `waybill` would take it.

        Raises:
            NotFoundError: there is no such folder, or the kind of URL is unknown.
            MissingExtraError: the package for a destination is not installed.
            SettingsError: a setting is invalid.
        """
        settings = Settings.load({}, origin="Lineage.open")
        if isinstance(place, str) and place.startswith(("http://", "https://")):
            from .answers import CollectorClient

            client = CollectorClient(place, settings.marquez_api_key)
            return cls(client.begin)
        if isinstance(place, str) and is_url(place):
            from waybill.exporter.query import ExportedFiles

            exported = ExportedFiles(place)
            published = Published(exported, exported.root)
            return cls(lambda: contextlib.nullcontext(FileAnswers(exported.root, exported, published.open)))
        place = settings.home if place is None else Path(place)
        if not place.is_dir():
            raise NotFoundError(f"there is no folder {place}; give the path of a home or of a root")
        access = Keys()
        published = Published(FolderRelations(place), place)
        return cls(functools.partial(open_answers, place, access, published))

    def find(self, query: Query | None = None) -> Records:
        """The records that answer a query, newest first unless it says otherwise.

        Raises:
            UnknownNameError: no record has the `missing_sink`.
            IncompleteError: a file or an entry could not be read, or a file is in quarantine.
            TooManyError: too many files would have to be compared for `missing_sink`.
            BacklogError: more records are not in files yet than fit into memory.
            RootError: the home's root is not there, or is another folder.
            JournalError: the journal cannot be read.
            OSError: a folder could not be read.
        """
        with self._asked() as answers:
            tables = answers.tables(query or Query())
            records = Records(record for table in tables for record in from_table(table))
            records.notes = tuple(answers.notes)
        return records

    def tables(
        self, query: Query | None = None, columns: Sequence[str] = ProvenanceRecord.__struct_fields__
    ) -> Iterator[Any]:
        """The records that answer a query, in `pyarrow.Table`s of bounded size with these columns.

        They come in the order of the query. Where only some of the columns are asked for, records of one
        instant come in any order. Raises what `find` does.
        """
        with self._asked() as answers:
            yield from answers.tables(query or Query(), columns)

    def open_files(self, query: Query | None = None) -> list[OpenFile]:
        """The files and runs that have begun and not ended and meet a query, the longest silent first.

        Whatever has not ended meets each `since_ms`. With `missing_sink`, these are the files that did not
        get there and have no record yet, besides those that `find` gives.

        Raises:
            InvalidQueryError: only a file that has ended can meet a condition.
            UnknownNameError: no record has the `missing_sink`.
        """
        with self._asked() as answers:
            return answers.open_files(query or Query())

    def stats(self, query: Query | None = None) -> Stats:
        """The number of records that answer a query, by kind; raises what `find` does."""
        with self._asked() as answers:
            return answers.stats(query or Query())

    @contextlib.contextmanager
    def _asked(self) -> Iterator[Answers]:
        with self._open_answers() as answers:
            yield answers
        for note in answers.notes:
            log.warning("%s", note)

    def _answer(self, question: Question[_Answer]) -> _Answer:
        with self._asked() as answers:
            return answers.answer(question)

    def sums(
        self, by: Collection[Dimension | str], query: Query | None = None
    ) -> dict[tuple[str | int | None, ...], int]:
        """The number of records that answer a query, of each kind, as `waybill find --by` shows them.

        Args:
            by: what makes a kind: some of state, system, source, sink and hour. A kind has a value of each,
                in this order: an hour as the epoch milliseconds of its start; None for no sink.
            query: the conditions; None: all records.

        Raises:
            ValueError: there is no such dimension, or none is given.
            WaybillError: those of `find`.
        """
        dimensions = [Dimension(one) for one in dict.fromkeys(by)]
        if not dimensions:
            raise ValueError(f"give at least one of {', '.join(Dimension)}")
        with self._asked() as answers:
            return answers.sums(dimensions, query or Query())

    def count(self, query: Query | None = None) -> int:
        """The number of records that answer a query, each once; raises what `find` does.

        With `missing_sink`, it is the number of files that did not get there, with or without a record.
        """
        stats, is_of_files = self.stats(query), query is not None and query.missing_sink is not None
        return stats.total_records + (stats.unended_files if is_of_files else 0)

    def duplicates(self) -> list[list[FileContent]]:
        """The files that have the same content as another one, grouped by content, in the order of arrival.

        Only files whose fingerprints were recorded. Raises what `find` does.
        """
        with self._asked() as answers:
            return answers.duplicates()

    def trace(
        self,
        did: str,
        *,
        up: bool = True,
        down: bool = True,
        depth: int | None = None,
        as_of_ms: int | None = None,
    ) -> Journey:
        """The journey of a file: see `waybill.lineage.trace`.

        Args:
            did: the file; a UUID may be spelled in any way.
            up: whether to follow its ancestors.
            down: whether to follow its descendants.
            depth: follow at most this many generations each way; None: all.
            as_of_ms: as it was known at this instant, epoch milliseconds; None: as it is known now.

        Raises:
            NotFoundError: nothing is recorded of it.
            EntriesGoneError: what was known at that instant cannot be said any more.
            IncompleteError: a file or an entry could not be read.
        """
        with self._asked() as answers:
            return answers.trace(did, up=up, down=down, depth=depth, as_of_ms=as_of_ms)

    def dependencies(
        self,
        name: str,
        *,
        up: int | None = 1,
        down: int | None = 1,
        as_of_ms: int | None = None,
        columns: bool = False,
    ) -> Dependencies:
        """What a dataset, column or job depends on, and what depends on it, as `waybill lineage` shows it.

        Args:
            name: the dataset or job: with its namespace and a slash, without it, or only its last part; of a
                column, with a dot and its own name behind the dataset's.
            up: how many edges upstream at most; None: all. One leads from a dataset to a job that reads it,
                or from a job to a dataset that it writes.
            down: how many downstream.
            as_of_ms: leave out what was told first after this instant, in epoch milliseconds.
            columns: whether to add the columns of the datasets, and what they come from in one step.

        Raises:
            NotFoundError: nothing has this name, or several have it; or the place has only records.
            JournalError: the journal or the index cannot be read.
        """
        question = OfDependencies(
            name, ALL if up is None else up, ALL if down is None else down, as_of_ms, columns
        )
        return self._answer(question)

    def upstream(self, name: str, depth: int | None = None) -> tuple[ReachedNode, ...]:
        """The datasets and jobs that a dataset or a job depends on, the nearest first.

        Follows at most `depth` edges, or all of them. Raises what `dependencies` does.
        """
        return self.dependencies(name, up=depth, down=0).upstream.nodes

    def downstream(self, name: str, depth: int | None = None) -> tuple[ReachedNode, ...]:
        """The datasets and jobs that depend on a dataset or a job; see `upstream`."""
        return self.dependencies(name, up=0, down=depth).downstream.nodes

    def impact(self, name: str) -> Impact:
        """What a change of a dataset, a column or a job reaches, as `waybill impact` shows it.

        Args:
            name: as `dependencies` takes it. Of a dataset, all its columns count.

        Raises:
            NotFoundError, JournalError: as `dependencies` raises.
        """
        return self._answer(OfImpact(name))

    def origins(self, column: str) -> Origins:
        """Where the values of a column come from, step by step, as `waybill origins` shows it.

        Args:
            column: the dataset's name, as `dependencies` takes it, a dot, and the column's own.

        Raises:
            NotFoundError, JournalError: as `dependencies` raises.
        """
        return self._answer(OfOrigins(column))

    def names(self, name: str) -> tuple[Node, ...]:
        """All names of a dataset, as the facet `symlinks` has told them; raises what `dependencies` does."""
        return self._answer(OfNames(name)).names

    def search(self, text: str, limit: int = 20) -> SearchResult:
        """The datasets and jobs that have all words of a text, as `waybill search` shows them.

        Args:
            text: words; each is the beginning of one in a name, a column, a tag, an owner or a description.
            limit: the best so many, at most 1,000.

        Raises:
            InvalidQueryError: the text has more than 1,000 characters.
            NotFoundError: the place has only records.
            JournalError: the journal or the index cannot be read.
        """
        return self._answer(OfSearch(text, limit))

    def analyzers(self) -> AnalyzerList:
        """The facets and analyzers that told the edges of the graph, and how many each.

        Raises what `dependencies` does.
        """
        return self._answer(OfAnalyzers())

    def unused_datasets(self, *, written: bool = False) -> tuple[ListedDataset, ...]:
        """The datasets that no job reads or writes or, if `written`, those that are written and never read.

        A dataset that was dropped last is in no list. Raises a `JournalError` if the journal or the index
        cannot be read, and a `NotFoundError` if the place has only records.
        """
        return self._answer(OfUnused(written)).datasets

    def stale_datasets(self, before_ms: int) -> tuple[ListedDataset, ...]:
        """The datasets that jobs wrote, and none since an instant; raises what `unused_datasets` does."""
        return self._answer(OfStale(before_ms)).datasets

    def recent_runs(
        self, since_ms: int = 0, state: RunStateName | None = None, limit: int = 20
    ) -> tuple[RecentRun, ...]:
        """The newest runs of which something was told since an instant, with the datasets of their jobs.

        With a state, only those that have it, of the newest 10,000. Of a job whose runs are files, there is
        only the last. Raises what `unused_datasets` does.
        """
        return self._answer(OfRuns(since_ms, state, limit)).runs

    def schema_changes(self, since_ms: int = 0) -> tuple[SchemaChange, ...]:
        """The datasets whose columns changed since an instant, and what that reaches; the 50 newest.

        Raises what `unused_datasets` does.
        """
        return self._answer(OfSchemaChanges(since_ms)).changes

    def duplicate_producers(self) -> tuple[Duplicate, ...]:
        """The jobs that write one dataset, and those that do the same from the same inputs.

        The most costly come first. Raises what `unused_datasets` does.
        """
        return self._answer(OfDuplicates()).duplicates

    def graph(
        self,
        name: str | None = None,
        *,
        up: int | None = None,
        down: int | None = None,
        columns: bool = False,
    ) -> Any:  # noqa: ANN401 - networkx has no types
        """What a dataset, column or job depends on, and what depends on it, as a `networkx.MultiDiGraph`.

        Its nodes are `Node`s, with their `distance` from the one asked about and, if known, the `state` of
        their last run. The key of an edge is its kind. Follows all edges, or at most `up` and `down` of them,
        and adds those of columns if asked. Without a name, these are all datasets and jobs, and which job
        reads or writes which dataset.

        Raises:
            MissingPackageError: networkx is not installed.
            NotFoundError: see `dependencies`.
            ValueError: `up`, `down` or `columns` are given without a name.
        """
        from .drawing import network_of
        from .graph import Graph

        if name is None:
            if up is not None or down is not None or columns:
                raise ValueError("up, down and columns are about the graph around a name; give a name")
            whole = self._answer(OfWhole())
            return network_of(Graph(None, dict.fromkeys(whole.nodes, 0), whole.edges))
        return network_of(Graph.of(self.dependencies(name, up=up, down=down, columns=columns)))

    def explain(self, did: str) -> Explanation:
        """The proof behind a file's records: its stored events, what they fold to, and the rows.

        Raises:
            CollectorReadError: the place is a collector, which does not give its stored events away.
            SourceError: the archive or the journal is damaged.
            OSError: a file cannot be read.
        """
        with self._asked() as answers:
            return answers.explain(did)

    def diff(self, first: str, second: str) -> RunDiff:
        """In which two runs differ: job, owners, SQL, inputs, outputs and columns, as `waybill diff` does.

        Args:
            first: the id of a run.
            second: that of another one.

        Raises:
            NotFoundError: no event of a run is stored.
            CollectorReadError, SourceError, OSError: as `explain` raises.
        """
        with self._asked() as answers:
            return answers.diff(first, second)

    def locate(self, receipt: str) -> ReceiptStatus | None:
        """Where an entry is that a collector acknowledged; None if its home never had it.

        Args:
            receipt: the value of the response's header `Waybill-Receipt`.

        Raises:
            InvalidQueryError: the text is not a receipt.
            JournalError: the journal cannot be read.
            RootError: the home's root is not there, or is another folder.
        """
        parsed = Receipt.parse(receipt)
        if parsed is None:
            raise InvalidQueryError("receipt", receipt, "is none; give the header's value")
        with self._asked() as answers:
            return answers.locate(parsed)

    def ancestors(self, did: str) -> list[JourneyFile]:
        """The files that a file came from, the nearest first; raises what `trace` does."""
        return self.trace(did, down=False).ancestors()

    def descendants(self, did: str) -> list[JourneyFile]:
        """The files that came from a file, the nearest first; raises what `trace` does."""
        return self.trace(did, up=False).descendants()


def find(place: str | os.PathLike[str] | None = None, query: Query | None = None) -> Records:
    """The records of a place that answer a query, as `Lineage.open` and `Lineage.find` say."""
    return Lineage.open(place).find(query)


@contextlib.contextmanager
def open_answers(folder: Path, access: Access, published: Published) -> Iterator[Answers]:
    """The answers of a home, or of a root that is no home, by what was published there.

    Raises:
        JournalError: the journal cannot be read.
    """
    if not Journal.exists(folder):
        yield FileAnswers(folder, access, published.open)
        return
    with contextlib.closing(Journal(folder, to_read=True)) as journal:
        yield HomeAnswers(journal, obey(journal), TailReader(journal), access)
