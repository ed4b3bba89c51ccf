"""Rows that decide which dataset is used: a URL, a query or the name of a table in each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

from waybill.facets.context import Around, JobRun

from ..errors import AdmissionError
from .datasets import dataset_of
from .file_run import Failure, OfOneProcess, failure_of
from .job_run import ToldRun

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

    from .datasets import Dataset, DatasetName

_Row = TypeVar("_Row")

NAMED_MAX: Final = 1_000
"""How many datasets one run names, the most used ones; the others are only counted."""


def check_sample(one_in: int) -> None:
    """Raise an `AdmissionError` unless a sample of one in so many rows has rows."""
    if one_in < 1:
        raise AdmissionError("one_in", f"is {one_in}", "give 1 for every row, or more")


class RowCounts:
    """How many rows used which dataset.

    Attributes:
        rows: how many there were.
        looked_at: how many of them were looked at.
        unnamed: how many were looked at, and their datasets were not told apart.
        uses: by dataset, how many used it.
    """

    def __init__(self, rows: int = 0, looked_at: int = 0, unnamed: int = 0) -> None:
        self.rows = rows
        self.looked_at = looked_at
        self.unnamed = unnamed
        self.uses: Counter[Dataset] = Counter()

    def look(self, given: DatasetName | None) -> Dataset | None:
        """Count the dataset of a row; None: it uses none."""
        self.looked_at += 1
        dataset = None if given is None else dataset_of(given)
        if dataset is not None:
            self.uses[dataset] += 1
        return dataset

    def tell(self, run: ToldRun, event_type: str, *, written: bool, failure: Failure | None = None) -> None:
        """Tell how a run of rows ended, with its most used datasets and the numbers of all."""
        told = {"rows": self.rows, "rows_looked_at": self.looked_at, "datasets": len(self.uses)}
        if self.unnamed:
            told["rows_of_further_datasets"] = self.unnamed
        named = dict(self.uses.most_common(NAMED_MAX))
        tell_uses(run, event_type, named, written=written, failure=failure, tags=told)


def tell_uses(
    run: ToldRun,
    event_type: str,
    uses: Mapping[Dataset, int],
    *,
    written: bool,
    failure: Failure | None = None,
    tags: Mapping[str, object] | None = None,
) -> None:
    """Tell how a run ended, with the datasets that it read or wrote."""
    inputs, outputs = (None, uses) if written else (uses, None)
    run.tell(event_type, inputs=inputs, outputs=outputs, failure=failure, tags=tags)


class TrackedRows(OfOneProcess, Generic[_Row]):
    """Rows, each of which decides which dataset is used; made by `Tracker.rows`.

    All of them are one run, which ends with the loop: as COMPLETE after the last row, as FAIL with the
    exception that leaves its ``with``, and as ABORT if the loop ends earlier.
    """

    def __init__(
        self,
        emit: Callable[[RunEvent], None],
        rows: Iterable[_Row],
        *,
        dataset: Callable[[_Row], DatasetName | None],
        job: tuple[str, str],
        written: bool,
        one_in: int,
        run_each: bool,
    ) -> None:
        self._emit: Final = emit
        self._rows: Final = rows
        self._dataset: Final = dataset
        self._job: Final = job
        self._written: Final = written
        self._one_in: Final = one_in
        self._run_each: Final = run_each
        self._run: Final = ToldRun(emit, *job, "ROWS")
        self._counts: Final = RowCounts()
        self._is_open = self._in_block = False

    def __iter__(self) -> Iterator[_Row]:
        self._begin()
        try:
            for place, row in enumerate(self._rows):
                self._counts.rows += 1
                dataset = None if place % self._one_in else self._counts.look(self._dataset(row))
                if self._run_each and dataset is not None:
                    yield from self._alone(row, dataset)
                else:
                    yield row
            self._end("COMPLETE")
        except GeneratorExit:
            if not self._in_block:  # which knows why
                self._end("ABORT", Failure("the loop ended before its rows did"))
            raise
        except BaseException as error:
            self._end("FAIL", failure_of(error))
            raise

    def __enter__(self) -> Self:
        self._begin()
        self._in_block = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        if raised is None:
            self._end("ABORT", Failure("its block ended before its rows did"))
        else:
            self._end("FAIL" if isinstance(raised, Exception) else "ABORT", failure_of(raised))

    def _begin(self) -> None:
        if not self._is_open:
            self._is_open = True
            self._run.tell("START")

    def _alone(self, row: _Row, dataset: Dataset) -> Iterator[_Row]:
        above = JobRun(*self._job, self._run.run_id)
        run = ToldRun(self._emit, *self._job, "ROW", Around(above, above))
        tell_uses(run, "START", {dataset: 1}, written=self._written)
        try:
            yield row
        except BaseException:
            tell_uses(run, "ABORT", {dataset: 1}, written=self._written)
            raise
        tell_uses(run, "COMPLETE", {dataset: 1}, written=self._written)

    def _end(self, event_type: str, failure: Failure | None = None) -> None:
        if self._is_open:
            self._is_open = False
            self._counts.tell(self._run, event_type, written=self._written, failure=failure)
