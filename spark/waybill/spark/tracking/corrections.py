"""Events of our own that correct the listener's: the failures that it does not report."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openlineage.client.facet_v2 import RunFacet

    from waybill.spark.tracking.exit_status import ProgramFailure
    from waybill.spark.tracking.observed_runs import ObservedRun


def failure_event(run: ObservedRun, failure: ProgramFailure, time_ms: int, *, language: str) -> bytes:
    """The FAIL event of a run (ABORT for a cancelled one), with the standard `errorMessage` facet.

    It repeats the run's job and parent, without which a backend would take it for another job's. The language
    is what wrote the details: ``PYTHON`` or ``JAVA``.
    """
    # Only the few programs that fail load the client.
    from openlineage.client.event_v2 import Job, Run as EventRun, RunEvent, RunState
    from openlineage.client.facet_v2 import error_message_run, parent_run

    from waybill.facets import PRODUCER
    from waybill.transport.serial import event_to_json

    facets: dict[str, RunFacet] = {
        "errorMessage": error_message_run.ErrorMessageRunFacet(
            message=failure.message,
            programmingLanguage=language,
            stackTrace=failure.details,
            producer=PRODUCER,
        )
    }
    if run.parent is not None:
        facets["parent"] = parent_run.ParentRunFacet(
            run=parent_run.Run(run.parent.run.runId),
            job=parent_run.Job(run.parent.job.namespace, run.parent.job.name),
            producer=PRODUCER,
        )
    return event_to_json(
        RunEvent(
            eventTime=datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds"),
            eventType=RunState.ABORT if failure.cancelled else RunState.FAIL,
            run=EventRun(run.run_id, facets),
            job=Job(run.namespace, run.name),
            producer=PRODUCER,
        )
    )
