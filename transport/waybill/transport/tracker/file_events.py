"""What is said about a tracked file, and the OpenLineage run events that say it.

A file is a run of the job named after its data source. Its beginning is START; every end of every path is a
terminal event that carries the whole record in the facet `waybill_deltaFile`, so that each can be understood
alone. FILTERED and SPLIT are COMPLETE to OpenLineage: the run did what it was meant to. Each event names the
same datasets, those of the job; which sink a file left by stands in the facet.

The OpenLineage client is imported where an event is made, so that importing the Tracker does not load it.
"""

from __future__ import annotations

from collections.abc import Mapping  # msgspec reads it at run time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.facets import FinalState

if TYPE_CHECKING:
    from collections.abc import Collection

    from openlineage.client.event_v2 import RunEvent
    from openlineage.client.facet_v2 import RunFacet

    from waybill.facets.delta_file import WaybillDeltaFileRunFacet


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


class FailureCause(msgspec.Struct, frozen=True):
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
        size_bytes: how much went there.
        failure: what went wrong, for an ERROR.
    """

    final_state: FinalState
    completed_ms: int
    transforms: tuple[str, ...]
    annotations: Mapping[str, str]
    data_sink: str | None = None
    size_bytes: int | None = None
    failure: FailureCause | None = None


def begin_event(file: FileIdentity, annotations: Mapping[str, str], sinks: Collection[str]) -> RunEvent:
    """Build the START event of a file.

    Args:
        file: which.
        annotations: what is known of it.
        sinks: those of its data source, its outputs.
    """
    return _event("START", file.created_ms, file, _delta_file(file, annotations), sinks)


def end_event(file: FileIdentity, end: PathEnd, sinks: Collection[str]) -> RunEvent:
    """Build the terminal event of one path of a file.

    Args:
        file: which.
        end: how the path ended.
        sinks: those of its data source, its outputs beside the sink that it left by.
    """
    from openlineage.client.facet_v2 import error_message_run, output_statistics_output_dataset

    from waybill.facets import PRODUCER

    event = _event(
        _TYPE_OF_STATE.get(end.final_state, "COMPLETE"),
        end.completed_ms,
        file,
        _delta_file(file, end.annotations, end),
        sinks if end.data_sink is None else {*sinks, end.data_sink},
    )
    if end.size_bytes is not None:
        (left_by,) = (output for output in event.outputs or () if output.name == end.data_sink)
        size = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            size=end.size_bytes, fileCount=1, producer=PRODUCER
        )
        left_by.outputFacets = {"outputStatistics": size}
    if end.failure is not None and event.run.facets is not None:
        event.run.facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            message=end.failure.message,
            programmingLanguage="PYTHON",
            stackTrace=end.failure.stack_trace,
            producer=PRODUCER,
        )
    return event


def _event(
    kind: str,
    time_ms: int,
    file: FileIdentity,
    delta_file: WaybillDeltaFileRunFacet,
    sinks: Collection[str],
) -> RunEvent:
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import job_type_job, parent_run

    from waybill.facets import DELTA_FILE_FACET, PRODUCER

    run_facets: dict[str, RunFacet] = {DELTA_FILE_FACET: delta_file}
    if file.parent is not None:
        run_facets["parent"] = parent_run.ParentRunFacet(
            run=parent_run.Run(file.parent.did),
            job=parent_run.Job(file.parent.system_name, file.parent.data_source),
            producer=PRODUCER,
        )
    job_type = job_type_job.JobTypeJobFacet(
        processingType="BATCH", integration="WAYBILL", jobType="FILE", producer=PRODUCER
    )
    return RunEvent(
        eventTime=_instant(time_ms),
        eventType=RunState(kind),
        run=Run(file.did, run_facets),
        job=Job(file.system_name, file.data_source, {"jobType": job_type}),
        inputs=[InputDataset(file.system_name, file.data_source)],
        outputs=[OutputDataset(file.system_name, sink) for sink in sorted(sinks)],
        producer=PRODUCER,
    )


def _delta_file(
    file: FileIdentity, annotations: Mapping[str, str], end: PathEnd | None = None
) -> WaybillDeltaFileRunFacet:
    from waybill.facets import PRODUCER
    from waybill.facets.delta_file import WaybillDeltaFileRunFacet

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
        producer=PRODUCER,
    )


def _instant(epoch_ms: int) -> str:
    seconds, ms = divmod(epoch_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ms:03}Z"


_TYPE_OF_STATE: Final = {FinalState.ERROR: "FAIL", FinalState.CANCELLED: "ABORT"}
