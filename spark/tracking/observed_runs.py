"""The runs of an application as the listener reports them, for matching failures with them."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec

from waybill.facets import EventType, RunEvent, parse_instant_us
from waybill.facets.event import SEVERITY, DatasetName, Parent, RunFacets, read_facet

RUNS_MAX: Final = 10_000
"""The most runs of a live application that are remembered."""


class _JobDetails(msgspec.Struct):
    job_id: int | None = msgspec.field(default=None, name="jobId")


_JOB_DETAILS: Final = msgspec.json.Decoder(_JobDetails)


class FailedExecution(msgspec.Struct, frozen=True):
    """The name of an execution: that of its application, and its number there."""

    application_id: str
    number: int


class ObservedRun(msgspec.Struct):
    """A run that the listener sent events for.

    Attributes:
        parent: the run that started it, for a write its application's.
        started_ms: the time of its START, which the listener takes from Spark's own event.
        ended_ms: the time of its latest terminal event, from Spark's event too.
        has_failed: whether one of its terminal events says that it did not complete.
        error: the text of the exception that the listener reported.
        of_rdd: whether it is an RDD's job, outside any SQL execution; its START names the job already.
        is_reported: whether we reported how it ended.
        failed: its failed execution, once known.
        is_part: whether another run tells of it: that of the command that it is a part of.
        sources: what its execution reads and the listener does not name.
        sinks: what it writes and the listener does not name.
        is_unnamed: whether it wrote, and nothing names where.
    """

    run_id: str
    namespace: str
    name: str
    parent: Parent | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    spark_jobs: set[int] = msgspec.field(default_factory=set)
    outputs: set[str] = msgspec.field(default_factory=set)
    has_failed: bool = False
    error: str | None = None
    of_rdd: bool = False
    is_reported: bool = False
    failed: FailedExecution | None = None
    is_part: bool = False
    inputs: set[str] = msgspec.field(default_factory=set)
    sources: tuple[DatasetName, ...] = ()
    sinks: tuple[DatasetName, ...] = ()
    is_unnamed: bool = False

    def encloses(self, other: ObservedRun) -> bool:
        """Whether another one of the same name ran within it, and wrote the same."""
        times_ms = self.started_ms, other.started_ms, other.ended_ms, self.ended_ms
        known_ms = [time_ms for time_ms in times_ms if time_ms is not None]
        is_within = self is not other and len(known_ms) == len(times_ms) and known_ms == sorted(known_ms)
        return is_within and self.name == other.name and self.outputs == other.outputs


class ObservedRuns:
    """The runs observed, by id; not thread-safe, its user locks.

    Args:
        runs_max: the most that are remembered; the least recently observed are forgotten first.
    """

    def __init__(self, runs_max: int = RUNS_MAX) -> None:
        self.runs: OrderedDict[str, ObservedRun] = OrderedDict()
        self._runs_max = runs_max

    def observe(self, event: RunEvent) -> ObservedRun:
        """Add one event; returns the run that it belongs to."""
        run = self.runs.get(event.run.runId) or ObservedRun(
            event.run.runId, event.job.namespace, event.job.name
        )
        # On a busy machine the listener may begin an application before it knows its name.
        run.namespace, run.name = event.job.namespace, event.job.name
        self.runs[run.run_id] = run
        self.runs.move_to_end(run.run_id)
        run.inputs.update(one.name for one in event.inputs or ())
        run.outputs.update(output.name for output in event.outputs or ())
        if event.run.facets is not None:
            self._add_facets(event.run.facets, run)
        time_ms = parse_instant_us(event.eventTime) // 1000
        if event.eventType is EventType.START:
            run.started_ms = time_ms
            run.of_rdd = bool(run.spark_jobs)
        elif event.eventType in SEVERITY:
            run.ended_ms = max(time_ms, run.ended_ms or 0)
            run.has_failed |= event.eventType is not EventType.COMPLETE
        while len(self.runs) > self._runs_max:
            self.runs.popitem(last=False)
        return run

    def open_runs(self) -> list[ObservedRun]:
        """The runs whose end is not reported yet; for RDD jobs the listener reports it only for writes."""
        runs = self.runs.values()
        return [run for run in runs if run.ended_ms is None and (run.outputs or not run.of_rdd)]

    @staticmethod
    def _add_facets(facets: RunFacets, run: ObservedRun) -> None:
        run.parent = facets.parent or run.parent
        details = read_facet(_JOB_DETAILS, facets.spark_job_details)
        if details is not None and details.job_id is not None:
            run.spark_jobs.add(details.job_id)
        if (reported := facets.read_exception()) is not None:
            run.error = reported.stack_trace or reported.message or ""
