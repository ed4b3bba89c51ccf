"""What is said about a tracked file, and the OpenLineage run events that say it.

A file is a run of the job named after its data source. Its beginning is START; every end of every path is a terminal
event that carries the whole record in the facet `waybill_deltaFile`, so that each can be understood alone. FILTERED and
SPLIT are COMPLETE to OpenLineage: the run did what it was meant to.
"""

from __future__ import annotations

import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.facets import FinalState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from openlineage.client.event_v2 import OutputDataset, RunEvent
    from openlineage.client.facet_v2 import RunFacet

# The client is imported where an event is made: whoever imports the Tracker does not load it.


class FileIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What stays the same about a file on all its paths.

    Attributes:
        did: a UUIDv7; also the id of its OpenLineage run.
        parent: the file it was split from.
        system_name: the instance that handles it, the namespace of its job.
        data_source: the flow it came in by, the name of its job.
        filename: its name.
        created_ms: when it began, in epoch milliseconds.
    """

    did: str
    parent: FileIdentity | None = None
    system_name: str
    data_source: str
    filename: str
    created_ms: int


class Failure(msgspec.Struct, frozen=True):
    """What went wrong with a file.

    Attributes:
        message: the exception's type and text, or the words given.
        stack_trace: Python's own, for an exception.
    """

    message: str
    stack_trace: str | None = None


class PathEnd(msgspec.Struct, frozen=True, kw_only=True):
    """One end of one path: what a record holds beside the file's identity.

    Attributes:
        final_state: how the path ended.
        completed_ms: when, in epoch milliseconds.
        transforms: the flows it passed, in order.
        annotations: what was noted about it.
        data_sink: the flow it left by.
        failure: what went wrong, for an ERROR.
    """

    final_state: FinalState
    completed_ms: int
    transforms: tuple[str, ...]
    annotations: Mapping[str, str]
    data_sink: str | None = None
    failure: Failure | None = None


_TYPE_OF_STATE: Final = {FinalState.ERROR: "FAIL", FinalState.CANCELLED: "ABORT"}
_PROGRAMMING_LANGUAGE: Final = "PYTHON"


def begin_event(file: FileIdentity, annotations: Mapping[str, str]) -> RunEvent:
    """Build the START event of a file."""
    return _event("START", file.created_ms, file, {DELTA_FILE_FACET: _delta_file(file, annotations)})


def end_event(file: FileIdentity, end: PathEnd) -> RunEvent:
    """Build the terminal event of one path of a file."""
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import error_message_run

    facets: dict[str, RunFacet] = {DELTA_FILE_FACET: _delta_file(file, end.annotations, end)}
    if end.failure is not None:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            end.failure.message, _PROGRAMMING_LANGUAGE, end.failure.stack_trace
        )
    outputs = [] if end.data_sink is None else [OutputDataset(file.system_name, end.data_sink)]
    kind = _TYPE_OF_STATE.get(end.final_state, "COMPLETE")
    return _event(kind, end.completed_ms, file, facets, outputs)


def failure_of(cause: BaseException | str) -> Failure:
    """Describe what went wrong; an exception whose text cannot be had is described all the same."""
    if isinstance(cause, str):
        return Failure(plain_text(cause))
    kind = type(cause)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        words = str(cause)
        trace = "".join(traceback.format_exception(cause))
    except Exception:  # noqa: BLE001 - the exception's own code runs here, and may raise anything
        return Failure(name)
    return Failure(plain_text(f"{name}: {words}" if words else name), plain_text(trace))


def plain_text(text: str) -> str:
    r"""Make text that every backend takes: NUL and lone surrogates, which names of files may hold, as escapes.

    >>> plain_text("a\udcff.csv")
    'a\\udcff.csv'
    """
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def _event(
    kind: str,
    time_ms: int,
    file: FileIdentity,
    facets: dict[str, RunFacet],
    outputs: list[OutputDataset] | None = None,
) -> RunEvent:
    from openlineage.client.event_v2 import InputDataset, Job, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import job_type_job, parent_run

    if file.parent is not None:
        facets["parent"] = parent_run.ParentRunFacet(
            parent_run.Run(file.parent.did), parent_run.Job(file.parent.system_name, file.parent.data_source)
        )
    job_type = job_type_job.JobTypeJobFacet(processingType="BATCH", integration="WAYBILL", jobType="FILE")
    return RunEvent(
        eventTime=_instant(time_ms),
        eventType=RunState(kind),
        run=Run(file.did, facets),
        job=Job(file.system_name, file.data_source, {"jobType": job_type}),
        inputs=[InputDataset(file.system_name, file.data_source)],
        outputs=outputs or [],
        producer=PRODUCER,
    )


def _delta_file(
    file: FileIdentity, annotations: Mapping[str, str], end: PathEnd | None = None
) -> WaybillDeltaFileRunFacet:
    from waybill.facets import WaybillDeltaFileRunFacet

    return WaybillDeltaFileRunFacet(
        did=file.did,
        parentDid=file.parent.did if file.parent else None,
        systemName=file.system_name,
        dataSource=file.data_source,
        filename=file.filename,
        transforms=list(end.transforms) if end else [],
        dataSink=end.data_sink if end else None,
        finalState=end.final_state.value if end else None,
        created=_instant(file.created_ms),
        completed=_instant(end.completed_ms) if end else None,
        annotations=dict(annotations) or None,
    )


def _instant(epoch_ms: int) -> str:
    seconds, ms = divmod(epoch_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ms:03}Z"
