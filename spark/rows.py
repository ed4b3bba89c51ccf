"""Rows in Spark's tasks that decide which dataset is used: counted there, told by the driver as one run."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from pyspark import cloudpickle

from waybill.facets.context import Around, JobRun, find_around
from waybill.transport import AdmissionError, Tracker
from waybill.transport.tracker.datasets import dataset_of
from waybill.transport.tracker.file_run import failure_of, name_of
from waybill.transport.tracker.job_run import ToldRun
from waybill.transport.tracker.rows import RowCounts, check_sample

from . import counting_rows
from .tracking.listener_options import APPLICATION_RUN, NAMESPACE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from waybill.transport.tracker.datasets import DatasetName

_Result = TypeVar("_Result")

cloudpickle.register_pickle_by_value(counting_rows)  # type: ignore[no-untyped-call]


class SparkRows:
    """Counts which datasets the rows of a job's tasks use, and tells it as one run when its block ends.

        with SparkRows(spark, dataset=lambda row: row["url"], job="crawl") as rows:
            frame.foreachPartition(rows.of_partition(fetch_all))

    A task that fails counts nothing. Work that Spark does again, as after the loss of an executor, counts
    again, except within `foreachPartition`.

    Args:
        spark: the session; not one of Spark Connect, whose tasks cannot report to the driver.
        dataset: gives the dataset of a row, as a path, a URI, or a namespace and a name; None: it uses none.
            It is sent to the tasks.
        job: the name of the run's job.
        written: whether the datasets are written; else they are read.
        one_in: look only at the first of so many rows in each task; all of them are counted.
        tracker: keeps the run's events; None: a new one, with the settings that it finds.

    Raises:
        AdmissionError: the job's name is empty, or `one_in` is less than 1; at the end of the block: a
            dataset has no name.
        JournalError: an event could not be kept, at the beginning or the end of the block.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        dataset: Callable[[Any], DatasetName | None],
        job: str = "rows",
        written: bool = False,
        one_in: int = 1,
        tracker: Tracker | None = None,
    ) -> None:
        check_sample(one_in)
        self._tracker: Final = tracker or Tracker()
        self._owns_tracker: Final = tracker is None
        self._written: Final = written
        nothing: counting_rows.Counts = (0, 0, 0, {})
        self._counts: Final = spark.sparkContext.accumulator(nothing, counting_rows.CountsSum())
        self._look: Final = functools.partial(
            counting_rows.count_rows, dataset=dataset, one_in=one_in, counts=self._counts
        )
        name, above = self._tracker.system_name, _application_of(spark)
        self._run: Final = ToldRun(self._tracker.emit, name, name_of("job", job), "ROWS", above)

    def __enter__(self) -> Self:
        self._run.tell("START")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        rows, looked_at, unnamed, uses = self._counts.value
        counts, wrong = RowCounts(rows, looked_at, unnamed), None
        try:
            for given, used in uses.items():
                counts.uses[dataset_of(given)] += used
        except AdmissionError as error:  # which only the driver can find
            wrong = error
        why = raised or wrong
        failure = None if why is None else failure_of(why)
        state = "COMPLETE" if why is None else "FAIL" if isinstance(why, Exception) else "ABORT"
        counts.tell(self._run, state, written=self._written, failure=failure)
        if self._owns_tracker:
            self._tracker.close()
        if wrong is not None and raised is None:
            raise wrong

    def of_partition(
        self, function: Callable[[Iterator[Any]], _Result]
    ) -> Callable[[Iterable[Any]], _Result]:
        """A function for ``foreachPartition`` or ``mapPartitions`` whose rows are counted."""
        look = self._look
        return lambda rows: function(look((row, [row]) for row in rows))

    def of_frames(self, function: Callable[[Iterator[Any]], _Result]) -> Callable[[Iterable[Any]], _Result]:
        """A function for ``mapInPandas`` whose rows are counted; `dataset` gets each as a dict."""
        look = self._look

        def rows_of(frame: Any) -> list[Any]:  # noqa: ANN401 - pandas is not needed here
            rows: list[Any] = frame.astype(object).where(frame.notna(), None).to_dict("records")
            return rows

        return lambda frames: function(look((frame, rows_of(frame)) for frame in frames))

    def of_values(self, function: Callable[..., _Result]) -> Callable[..., _Result]:
        """A function for a UDF whose calls are counted; `dataset` gets its arguments as a tuple."""
        look = self._look

        return lambda *values: next(function(*values) for _ in look([(values, [values])]))  # of one row


def _application_of(spark: SparkSession) -> Around | None:
    """The run of a tracked application; None: it is not known."""
    run: str | None = spark.conf.get(APPLICATION_RUN, None)
    namespace: str | None = spark.conf.get(NAMESPACE, None)
    if run is None or namespace is None:
        return None
    above, around = JobRun(namespace, spark.sparkContext.appName or "", run), find_around(os.environ)
    return Around(above, around.root if around else above)
