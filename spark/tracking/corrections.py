"""Our own events about the listener's runs: hidden failures, confirmed successes and lost ends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from waybill.facets import EVIDENCE_FACET, INFERRED_FACET, PRODUCER, EventType
from waybill.facets.annotations import LISTENER_SAYS, PART, RUN
from waybill.facets.causes import mask_secrets
from waybill.facets.event import Job as EventJob, Parent, ParentRun
from waybill.facets.overrides import TAG_PREFIX, read_job_tags

from .observed_runs import FailedExecution, ObservedRun
from .plans import command_of, targets_of

if TYPE_CHECKING:
    from openlineage.client.facet_v2 import RunFacet

    from waybill.facets.event import DatasetName

    from .executions import Execution
    from .exit_status import ProgramFailure

RUN_NOT_KNOWN: Final = "not known"
"""The annotation `run` of a failure that matches none of the listener's runs."""
SILENT: Final = "silent"
"""The annotation `listener` of a write that the listener did not report."""

_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|\W+")


class UnknownRun(ObservedRun, kw_only=True):
    """A run that stands for an execution whose own run is unknown."""


def unknown_run(
    execution: Execution,
    application: ObservedRun,
    application_id: str,
    sinks: Sequence[DatasetName] | None = None,
) -> UnknownRun:
    """The same run for the same execution of the same application, however often it is created.

    Its job has the name that the listener gives to such an execution. Without `sinks` it has those that the
    plan names.
    """
    from openlineage.client.uuid import generate_static_uuid

    found = targets_of(execution.plan) if sinks is None else sinks
    command = command_of(execution.plan) or "execution"
    names = [application.name, _HUMP.sub("_", command).strip("_").lower()]
    if len(found) == 1:
        names.append("_".join(found[0].name.strip("/").split("/")[-2:]))
    ended = datetime.fromtimestamp(execution.completed_ms / 1000, UTC)
    part = f"{application_id} {execution.id}{'' if execution.error or not execution.wrote else ' written'}"
    return UnknownRun(
        str(generate_static_uuid(ended, part.encode())),
        application.namespace,
        ".".join(names),
        parent=Parent(ParentRun(application.run_id), EventJob(application.namespace, application.name)),
        ended_ms=execution.completed_ms,
        outputs={sink.name for sink in found},
        failed=FailedExecution(application_id, execution.id) if execution.error else None,
        sinks=tuple(found),
    )


def success_event(
    run: ObservedRun, *, source: str = "session", nothing: str | None = None, job_tags: Iterable[str] = ()
) -> bytes:
    """The COMPLETE event of a run once more, confirmed by this session or by an event log.

    A run that wrote nothing gets a FILTERED record; `nothing` is why. The tags of Spark's jobs count as in
    one of the listener's events.
    """
    from waybill.facets.inferred import WaybillEvidenceRunFacet

    evidence = WaybillEvidenceRunFacet(source=source, producer=PRODUCER)
    said = {} if nothing is None else {"final_state": "FILTERED", "filteredCause": nothing}
    if isinstance(run, UnknownRun) or run.is_unnamed:
        said[LISTENER_SAYS] = SILENT
    facets = {EVIDENCE_FACET: evidence} | _tags_of(run, said, job_tags)
    return _event_of(run, EventType.COMPLETE, run.ended_ms or 0, facets)


def failure_event(
    run: ObservedRun, failure: ProgramFailure, time_ms: int, *, language: str, job_tags: Iterable[str] = ()
) -> bytes:
    """The FAIL event of a run (ABORT for a cancelled one), with the standard `errorMessage` facet.

    It repeats the run's job and parent; otherwise a backend would assign it to another job. The facet
    `externalQuery` names the execution that failed, so that nobody reports it twice. The event of an unknown
    run says so in a tag. The language is that of the details: ``PYTHON`` or ``JAVA``. The tags of Spark's
    jobs count as for `success_event`.
    """
    from openlineage.client.facet_v2 import error_message_run, external_query_run

    facets: dict[str, RunFacet] = {
        "errorMessage": error_message_run.ErrorMessageRunFacet(
            message=failure.message,
            programmingLanguage=language,
            stackTrace=failure.details and mask_secrets(failure.details),
            producer=PRODUCER,
        )
    }
    if run.failed is not None:
        facets["externalQuery"] = external_query_run.ExternalQueryRunFacet(
            externalQueryId=str(run.failed.number), source=run.failed.application_id, producer=PRODUCER
        )
    said = {}
    if failure.cancelled:
        said["final_state"] = "CANCELLED"  # although the listener may report its jobs as failed
    if isinstance(run, UnknownRun):
        said[RUN] = RUN_NOT_KNOWN
    kind = EventType.ABORT if failure.cancelled else EventType.FAIL
    return _event_of(run, kind, time_ms, facets | _tags_of(run, said, job_tags))


def inferred_end_event(run: ObservedRun, time_ms: int, reason: str) -> bytes:
    """The ABORT event of a run whose end the listener did not report; its own end replaces it."""
    from waybill.facets.inferred import WaybillInferredRunFacet

    facets = {INFERRED_FACET: WaybillInferredRunFacet(reason=reason, producer=PRODUCER)}
    return _event_of(run, EventType.ABORT, time_ms, facets)


def _event_of(
    run: ObservedRun,
    kind: EventType,
    time_ms: int,
    facets: Mapping[str, RunFacet],
) -> bytes:
    """An event of ours about a run, with the run's job and parent, and the datasets that its plan added."""
    # Only programs that have something to correct or to confirm load the client.
    from openlineage.client.event_v2 import (
        InputDataset,
        Job,
        OutputDataset,
        Run as EventRun,
        RunEvent,
        RunState,
    )

    from waybill.transport.serial import event_to_json

    instant = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return event_to_json(
        RunEvent(
            eventTime=instant,
            eventType=RunState[kind.name],
            run=EventRun(run.run_id, {**_parent_of(run), **facets}),
            job=Job(run.namespace, run.name),
            inputs=[InputDataset(one.namespace, one.name) for one in run.sources],
            outputs=[OutputDataset(one.namespace, one.name) for one in run.sinks],
            producer=PRODUCER,
        )
    )


def _parent_of(run: ObservedRun) -> dict[str, RunFacet]:
    from openlineage.client.facet_v2 import parent_run

    if run.parent is None:
        return {}
    facet = parent_run.ParentRunFacet(
        run=parent_run.Run(run.parent.run.runId),
        job=parent_run.Job(run.parent.job.namespace, run.parent.job.name),
        producer=PRODUCER,
    )
    return {"parent": facet}


def _tags_of(run: ObservedRun, said: dict[str, str], job_tags: Iterable[str]) -> dict[str, RunFacet]:
    """The tags that affect the run's record; may be empty."""
    from openlineage.client.facet_v2 import tags_run

    if run.is_part:
        said[PART] = "of a command"
    whole = dict(read_job_tags(job_tags)) | {TAG_PREFIX + key: text for key, text in said.items()}
    tags = [tags_run.TagsRunFacetFields(key, text, "WAYBILL") for key, text in whole.items()]
    return {"tags": tags_run.TagsRunFacet(tags, producer=PRODUCER)} if tags else {}
