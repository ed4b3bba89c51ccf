"""What every place that is asked can answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from waybill.facets import ProvenanceRecord

if TYPE_CHECKING:
    from waybill.exporter import Query
    from waybill.exporter.query import Dimension, Kind, Stats
    from waybill.exporter.verification import Explanation
    from waybill.facets.merge_rule import RecordKey
    from waybill.transport.journal import FileContent, Receipt

    from ..comparing import RunDiff
    from ..graph import Question
    from ..index import JobRun, OpenFile
    from ..journey import Journey
    from .receipts import ReceiptStatus

_Answer = TypeVar("_Answer")


class Answers(Protocol):
    """Answers questions about the files of one place, for one asker.

    Attributes:
        notes: sentences about what the answers so far lack, and what stands beside them.
        unsettled: the keys of the records in the answers so far that may still change.
    """

    notes: dict[str, None]
    unsettled: set[RecordKey]

    def tables(
        self, query: Query, columns: Sequence[str] = ProvenanceRecord.__struct_fields__
    ) -> Iterator[Any]:
        """The records that answer a query, in `pyarrow.Table`s of bounded size with these columns.

        They come in the order of the query. Where only some of the columns are asked for, records of one
        instant come in any order.

        Raises:
            UnknownNameError: no record has the `missing_sink`.
            IncompleteError: a file or an entry could not be read; all that could be read came before.
            TooManyError, BacklogError, RootError, JournalError, OSError: as `waybill.exporter.find` raises.
        """

    def stats(self, query: Query) -> Stats:
        """The number of records that answer a query, by kind; raises what `tables` does."""

    def sums(self, by: Sequence[Dimension], query: Query) -> dict[Kind, int]:
        """The number of records that answer a query, of each kind; raises what `tables` does."""

    def open_files(self, query: Query) -> list[OpenFile]:
        """The files and runs that have begun and not ended and meet a query, the longest silent first.

        Whatever has not ended meets each `since_ms`. With `missing_sink` these are the files that did not get
        there and have no record yet.

        Raises:
            InvalidQueryError: only a file that has ended can meet a condition.
            UnknownNameError: no record has the `missing_sink`.
        """

    def job_runs(
        self, told: Iterable[ProvenanceRecord | OpenFile], query: Query | None = None
    ) -> dict[str, JobRun]:
        """By did, those of some records or open files that are of runs and of no files.

        If they answer a query for a filename that datasets have which these runs read, `notes` says so.
        """

    def duplicates(self) -> list[list[FileContent]]:
        """The files of each content that several files have, by content, in the order in which they began."""

    def trace(
        self, did: str, *, up: bool, down: bool, depth: int | None, as_of_ms: int | None = None
    ) -> Journey:
        """The journey of a file; see `waybill.lineage.Lineage.trace`."""

    def answer(self, question: Question[_Answer]) -> _Answer:
        """Answer a question about the graph of datasets and jobs.

        Raises:
            NotFoundError: nothing has the name that is asked about, or several have it, or there are only
                files.
        """

    def explain(self, did: str) -> Explanation:
        """The proof behind a file's records, from the stored events to the rows.

        Raises:
            SourceError, OSError: as `waybill.exporter.explain` raises.
            CollectorReadError: a collector is asked, which does not give its stored events away.
        """

    def diff(self, first: str, second: str) -> RunDiff:
        """In which two runs differ, by their stored events.

        Raises:
            NotFoundError: no event of a run is stored.
            SourceError, OSError, CollectorReadError: as `explain` raises.
        """

    def locate(self, receipt: Receipt) -> ReceiptStatus | None:
        """Where an acknowledged entry is; None if the journal never had it, or there are only files.

        Raises:
            JournalError, RootError, OSError: the journal or the root cannot be read.
        """
