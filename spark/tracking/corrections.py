"""Our own events about the listener's runs: hidden failures, confirmed successes and lost ends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.facets import EVIDENCE_FACET, INFERRED_FACET, PRODUCER, EventType
from waybill.facets.annotations import LISTENER_SAYS, PART, RUN
from waybill.facets.causes import mask_secrets
from waybill.facets.event import Job as EventJob, Parent, ParentRun, facet_schema_url
from waybill.facets.json_events import RUN_EVENT_SCHEMA, instant, standard_facet
from waybill.facets.overrides import TAG_PREFIX, read_job_tags

from .observed_runs import FailedExecution, ObservedRun
from .plans import command_of, targets_of

if TYPE_CHECKING:
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
    said = {} if nothing is None else {"final_state": "FILTERED", "filteredCause": nothing}
    if isinstance(run, UnknownRun) or run.is_unnamed:
        said[LISTENER_SAYS] = SILENT
    facets = _tags_of(run, said, job_tags) | {
        EVIDENCE_FACET: _own_facet("WaybillEvidenceRunFacet", source=source)
    }
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
    error = {"message": failure.message, "programmingLanguage": language}
    if failure.details:
        error["stackTrace"] = mask_secrets(failure.details)
    # An exception may name a file that is not UTF-8.
    error = {key: text.encode("utf-8", "backslashreplace").decode() for key, text in error.items()}
    said = {}
    if failure.cancelled:
        said["final_state"] = "CANCELLED"  # although the listener may report its jobs as failed
    if isinstance(run, UnknownRun):
        said[RUN] = RUN_NOT_KNOWN
    facets = _tags_of(run, said, job_tags)
    facets["errorMessage"] = standard_facet("1-0-1", "ErrorMessageRunFacet", **error)
    if run.failed is not None:
        query = {"externalQueryId": str(run.failed.number), "source": run.failed.application_id}
        facets["externalQuery"] = standard_facet("1-0-2", "ExternalQueryRunFacet", **query)
    return _event_of(run, EventType.ABORT if failure.cancelled else EventType.FAIL, time_ms, facets)


def inferred_end_event(run: ObservedRun, time_ms: int, reason: str) -> bytes:
    """The ABORT event of a run whose end the listener did not report; its own end replaces it."""
    facets: dict[str, object] = {INFERRED_FACET: _own_facet("WaybillInferredRunFacet", reason=reason)}
    return _event_of(run, EventType.ABORT, time_ms, facets)


def _event_of(run: ObservedRun, kind: EventType, time_ms: int, facets: dict[str, object]) -> bytes:
    """An event of ours about a run, with the run's job and parent, and the datasets that its plan added."""
    if run.parent is not None:
        above = {"run": run.parent.run, "job": run.parent.job}
        facets["parent"] = standard_facet("1-2-0", "ParentRunFacet", **above)
    return msgspec.json.encode(
        {
            "eventTime": instant(time_ms),
            "eventType": kind,
            "producer": PRODUCER,
            "schemaURL": RUN_EVENT_SCHEMA,
            "run": {"runId": run.run_id, "facets": facets},
            "job": {"namespace": run.namespace, "name": run.name},
            "inputs": [{"namespace": one.namespace, "name": one.name} for one in run.sources],
            "outputs": [{"namespace": one.namespace, "name": one.name} for one in run.sinks],
        }
    )


def _own_facet(name: str, **members: object) -> dict[str, object]:
    return {"_producer": PRODUCER, "_schemaURL": facet_schema_url(name), **members}


def _tags_of(run: ObservedRun, said: dict[str, str], job_tags: Iterable[str]) -> dict[str, object]:
    """The tags that affect the run's record; may be empty."""
    if run.is_part:
        said[PART] = "of a command"
    whole = dict(read_job_tags(job_tags)) | {TAG_PREFIX + key: text for key, text in said.items()}
    tags = [{"key": key, "value": text, "source": "WAYBILL"} for key, text in whole.items()]
    return {"tags": standard_facet("1-0-0", "TagsRunFacet", tags=tags)} if tags else {}
