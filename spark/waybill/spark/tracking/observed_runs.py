"""The runs of an application as the listener reports them: what is needed to match failures with them."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec

from waybill.facets import EventType, RunEvent, decode_event, parse_instant_us
from waybill.facets.event import Parent, RunFacets

RUNS_MAX: Final = 10_000
"""The most runs that are remembered; the least recently observed are forgotten first."""

_ENDS: Final = frozenset({EventType.COMPLETE, EventType.FAIL, EventType.ABORT})


class _JobDetails(msgspec.Struct):
    job_id: int | None = msgspec.field(default=None, name="jobId")


class _Exception(msgspec.Struct):
    message: str = ""
    stack_trace: str | None = msgspec.field(default=None, name="stackTrace")


_EXCEPTION: Final = msgspec.json.Decoder(_Exception)
_JOB_DETAILS: Final = msgspec.json.Decoder(_JobDetails)


class ObservedRun(msgspec.Struct):
    """A run that the listener sent events of.

    Attributes:
        parent: the run that started it, for a write its application's.
        started_ms: the time of its START, which the listener takes from Spark's own event.
        ended_ms: the time of its latest terminal event, from Spark's event too.
        error: the text of the exception that the listener reported.
        of_rdd: whether it is an RDD's job, outside any SQL execution; its START names the job already.
        is_reported: whether we reported its failure.
    """

    run_id: str
    namespace: str
    name: str
    parent: Parent | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    spark_jobs: set[int] = msgspec.field(default_factory=set)
    outputs: set[str] = msgspec.field(default_factory=set)
    error: str | None = None
    of_rdd: bool = False
    is_reported: bool = False


class ObservedRuns:
    """The runs observed, by id; not thread-safe, its user locks."""

    def __init__(self) -> None:
        self.runs: OrderedDict[str, ObservedRun] = OrderedDict()
        self._by_job: dict[int, ObservedRun] = {}

    def observe(self, body: bytes) -> ObservedRun | None:
        """Add one event; the run it belongs to, None for an event of no run."""
        event = decode_event(body)
        if not isinstance(event, RunEvent):
            return None
        run = self.runs.get(event.run.runId) or ObservedRun(
            event.run.runId, event.job.namespace, event.job.name
        )
        # On a busy machine the listener may begin an application before it knows its name.
        run.namespace, run.name = event.job.namespace, event.job.name
        self.runs[run.run_id] = run
        self.runs.move_to_end(run.run_id)
        run.outputs.update(output.name for output in event.outputs or ())
        if event.run.facets is not None:
            self._add_facets(event.run.facets, run)
        time_ms = parse_instant_us(event.eventTime) // 1000
        if event.eventType is EventType.START:
            run.started_ms = time_ms
            run.of_rdd = bool(run.spark_jobs)
        elif event.eventType in _ENDS:
            run.ended_ms = max(time_ms, run.ended_ms or 0)
        while len(self.runs) > RUNS_MAX:
            _, forgotten = self.runs.popitem(last=False)
            for job in forgotten.spark_jobs:
                self._by_job.pop(job, None)
        return run

    def open_runs(self) -> list[ObservedRun]:
        """The runs whose end is still to be told; of an RDD's jobs the listener tells it of writes only."""
        runs = self.runs.values()
        return [run for run in runs if run.ended_ms is None and (run.outputs or not run.of_rdd)]

    def of_job(self, spark_job: int) -> ObservedRun | None:
        """The run that a Spark job ran for."""
        return self._by_job.get(spark_job)

    def _add_facets(self, facets: RunFacets, run: ObservedRun) -> None:
        run.parent = facets.parent or run.parent
        if details := bytes(facets.spark_job_details):
            job_id = _JOB_DETAILS.decode(details).job_id
            if job_id is not None:
                run.spark_jobs.add(job_id)
                self._by_job[job_id] = run
        if exception := bytes(facets.spark_exception):
            reported = _EXCEPTION.decode(exception)
            run.error = reported.stack_trace or reported.message
