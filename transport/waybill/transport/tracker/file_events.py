"""What happens to a tracked file, and the OpenLineage run events that say so.

A file is a run of the job named after its data source. Its beginning is START; every end of every path is a
terminal event that carries the whole record in the facet `waybill_deltaFile`, so that each can be understood
alone. FILTERED and SPLIT are COMPLETE to OpenLineage: the run did what it was meant to. Each event names the
same datasets, those of the job; the facet says by which sink a file left.

The OpenLineage client is imported where an event is made, so that importing the Tracker does not load it.
"""

from __future__ import annotations

from collections.abc import Mapping  # msgspec reads it at run time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.facets import DELTA_FILE_FACET, PRODUCER, FinalState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from openlineage.client.event_v2 import RunEvent
    from openlineage.client.facet_v2 import RunFacet

    from waybill.facets.delta_file import WaybillDeltaFileRunFacet


def _new_did() -> str:
    from openlineage.client.uuid import generate_new_uuid

    return str(generate_new_uuid())


class FileIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What stays the same about a file on all its paths.

    Attributes:
        did: a UUIDv7; also the id of its OpenLineage run.
        parent: the file it was split from.
        system_name: the instance that handles it, the namespace of its job.
        data_source: the flow it came in by, the name of its job.
    """

    did: str = msgspec.field(default_factory=_new_did)
    parent: FileIdentity | None = None
    system_name: str
    data_source: str
    filename: str
    created_ms: int


class Failure(msgspec.Struct, frozen=True):
    """What went wrong with a file: the exception's type and text, or the words given."""

    message: str
    stack_trace: str | None = None


class PathState(msgspec.Struct, frozen=True, kw_only=True):
    """What one event says of a path: that it has begun, or with a final state, how it ended.

    Attributes:
        transforms: the flows it passed, in order.
        data_sink: the flow it left by.
        size_bytes: how much went there.
        failure: what went wrong, for an ERROR.
    """

    at_ms: int
    annotations: Mapping[str, str]
    final_state: FinalState | None = None
    transforms: tuple[str, ...] = ()
    data_sink: str | None = None
    size_bytes: int | None = None
    failure: Failure | None = None


def event_of(file: FileIdentity, state: PathState, sinks: Iterable[str]) -> RunEvent:
    """Build the event that says what has become of a path; the sinks are those of the file's data source."""
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import (
        error_message_run,
        job_type_job,
        output_statistics_output_dataset,
        parent_run,
    )

    run_facets: dict[str, RunFacet] = {DELTA_FILE_FACET: _delta_file(file, state)}
    if file.parent is not None:
        run_facets["parent"] = parent_run.ParentRunFacet(
            run=parent_run.Run(file.parent.did),
            job=parent_run.Job(file.parent.system_name, file.parent.data_source),
            producer=PRODUCER,
        )
    if state.failure is not None:
        run_facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            message=state.failure.message,
            programmingLanguage="PYTHON",
            stackTrace=state.failure.stack_trace,
            producer=PRODUCER,
        )
    job_type = job_type_job.JobTypeJobFacet(
        processingType="BATCH", integration="WAYBILL", jobType="FILE", producer=PRODUCER
    )
    names = set(sinks) if state.data_sink is None else {*sinks, state.data_sink}
    outputs = {name: OutputDataset(file.system_name, name) for name in sorted(names)}
    if state.data_sink is not None and state.size_bytes is not None:
        size = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            size=state.size_bytes, fileCount=1, producer=PRODUCER
        )
        outputs[state.data_sink].outputFacets = {"outputStatistics": size}
    return RunEvent(
        eventTime=_instant(state.at_ms),
        eventType=RunState(_EVENT_TYPES.get(state.final_state, "COMPLETE")),
        run=Run(file.did, run_facets),
        job=Job(file.system_name, file.data_source, {"jobType": job_type}),
        inputs=[InputDataset(file.system_name, file.data_source)],
        outputs=list(outputs.values()),
        producer=PRODUCER,
    )


def _delta_file(file: FileIdentity, state: PathState) -> WaybillDeltaFileRunFacet:
    from waybill.facets.delta_file import WaybillDeltaFileRunFacet

    return WaybillDeltaFileRunFacet(
        did=file.did,
        parentDid=file.parent.did if file.parent else None,
        systemName=file.system_name,
        dataSource=file.data_source,
        filename=file.filename,
        transforms=list(state.transforms),
        dataSink=state.data_sink,
        finalState=state.final_state.value if state.final_state else None,
        created=_instant(file.created_ms),
        completed=_instant(state.at_ms) if state.final_state else None,
        annotations=dict(state.annotations) or None,
        producer=PRODUCER,
    )


def _instant(epoch_ms: int) -> str:
    seconds, ms = divmod(epoch_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ms:03}Z"


_EVENT_TYPES: Final = {None: "START", FinalState.ERROR: "FAIL", FinalState.CANCELLED: "ABORT"}
