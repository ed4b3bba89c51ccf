"""Events of our own that correct the listener's: how a run really ended."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openlineage.client.facet_v2 import RunFacet

    from waybill.spark.tracking.exit_status import ProgramFailure
    from waybill.spark.tracking.observed_runs import ObservedRun


def failure_event(run: ObservedRun, failure: ProgramFailure, time_ms: int, *, language: str) -> bytes:
    """The FAIL event of a run (ABORT for a cancelled one), with the standard `errorMessage` facet.

    Args:
        run: as the listener named it; its job and parent must be repeated, or a backend would take the
            event for another job's.
        failure: the reason.
        time_ms: when it failed, in epoch milliseconds.
        language: what wrote the details: ``PYTHON`` or ``JAVA``.
    """
    # The client is loaded by the few programs that fail, not by each one that starts.
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
