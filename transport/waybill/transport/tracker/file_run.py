"""A file run: one file's passage through its flows, and the OpenLineage run events that tell it.

A file is a run of the job named after its data source. Its beginning is START; every end of every path is a
terminal event that carries the whole record in the facet `waybill_deltaFile`, so that each can be understood
alone. FILTERED and SPLIT are COMPLETE to OpenLineage: the run did what it was meant to. Each event names the
same datasets, those of the job; the facet says by which sink a file left.

The OpenLineage client is imported where an event is made, so that importing the Tracker does not load it.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Mapping  # msgspec reads it at run time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec

from waybill.facets import DELTA_FILE_FACET, PRODUCER, FinalState
from waybill.transport.errors import AdmissionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from openlineage.client.event_v2 import RunEvent
    from openlineage.client.facet_v2 import RunFacet

    from waybill.facets.delta_file import WaybillDeltaFileRunFacet

_EVENT_TYPES: Final = {None: "START", FinalState.ERROR: "FAIL", FinalState.CANCELLED: "ABORT"}

SINKS_MAX: Final = 32
"""A data source with more sinks names them after its files, so that they are not ends of one flow."""

_SOURCES_MAX: Final = 1_000
"""The sinks of more data sources are not remembered."""


def _new_did() -> str:
    from openlineage.client.uuid import generate_new_uuid

    return str(generate_new_uuid())


class FileIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What stays the same about a file on all its paths.

    Attributes:
        did: a UUIDv7; also the id of its OpenLineage run.
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
    """What one event says of a path: that the file has begun, or with a final state, how the path ended."""

    at_ms: int
    annotations: Mapping[str, str]
    final_state: FinalState | None = None
    transforms: tuple[str, ...] = ()
    data_sink: str | None = None
    size_bytes: int | None = None
    failure: Failure | None = None


class OfOneProcess:
    """What cannot be pickled, because its connection to the journal is that of its process."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be sent to another process; make a Tracker there, within the "
            "function that runs there, and send it what it has to know as text"
        )


class KnownSinks:
    """The sinks of data sources: those declared, and those that files left by. Threads may share one.

    Marquez takes the datasets that the last run of a job named for all that the job has. So each event of a
    file names all sinks of its data source, whichever of them this file leaves by in the end.
    """

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._of: Final[dict[str, frozenset[str]]] = {}

    def learn(self, data_source: str, data_sinks: Iterable[str]) -> None:
        """Remember sinks of a data source."""
        new = frozenset(data_sinks)
        if new <= self._of.get(data_source, frozenset()):
            return
        with self._lock:
            known = self._of.get(data_source, frozenset())
            if data_source in self._of or len(self._of) < _SOURCES_MAX:
                # One more than the limit is kept, as the sign that there are too many.
                self._of[data_source] = frozenset(sorted(known | new)[: SINKS_MAX + 1])

    def of(self, data_source: str) -> frozenset[str]:
        """The sinks of a data source; empty if there are too many."""
        known = self._of.get(data_source, frozenset())
        return known if len(known) <= SINKS_MAX else frozenset()


class FileRun(OfOneProcess):
    """What the paths of one file share: its identity, its clock, and where its events go."""

    def __init__(self, identity: FileIdentity, emit: Callable[[RunEvent], None], sinks: KnownSinks) -> None:
        self.identity: Final = identity
        self.sinks: Final = sinks
        self.recorded: Final[list[BaseException]] = []
        """The exceptions that branches ended with; cleared when the file's own block is left."""
        self._emit: Final = emit
        self._lock: Final = threading.Lock()
        self._last_ms = identity.created_ms - 1

    def child(self, filename: str, data_source: str, created_ms: int) -> FileRun:
        """Make the run of a file that was split from this one; no event is emitted yet."""
        identity = FileIdentity(
            parent=self.identity,
            system_name=self.identity.system_name,
            data_source=data_source,
            filename=filename,
            created_ms=created_ms,
        )
        return FileRun(identity, self._emit, self.sinks)

    def tell(self, state: PathState) -> None:
        """Emit the event that says what has become of a path."""
        source = self.identity.data_source
        if state.data_sink is not None:
            self.sinks.learn(source, [state.data_sink])
        self._emit(_event_of(self.identity, state, self.sinks.of(source)))

    def next_instant_ms(self) -> int:
        """Take an instant after every earlier one of this file, whatever the clock does."""
        with self._lock:
            self._last_ms = max(now_ms(), self._last_ms + 1)
            return self._last_ms


def _event_of(file: FileIdentity, state: PathState, sinks: Iterable[str]) -> RunEvent:
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


def now_ms() -> int:
    """Read the clock, in epoch milliseconds."""
    return time.time_ns() // 1_000_000


def failure_of(cause: BaseException | str) -> Failure:
    """Describe what went wrong, even if the exception cannot be printed."""
    if isinstance(cause, str):
        return Failure(text_of(cause))
    kind = type(cause)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        words = str(cause)
        trace = "".join(traceback.format_exception(cause))
    except Exception:  # noqa: BLE001 - the exception's own code runs here, and may raise anything
        return Failure(name)
    return Failure(text_of(f"{name}: {words}" if words else name), text_of(trace))


def text_of(text: str) -> str:
    """Escape what some backends refuse: NUL, and the lone surrogates of file names that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def annotations_of(annotations: Mapping[str, object] | None) -> dict[str, str]:
    """Turn annotations into texts: `str(value)`, and true or false for a bool. None is refused."""
    texts = {}
    for key, value in (annotations or {}).items():
        if value is None:
            raise AdmissionError(f"annotations.{key}", "is None", "leave it out, or give it a text")
        texts[text_of(key)] = text_of(str(value).lower() if isinstance(value, bool) else str(value))
    return texts


def name_of(what: str, name: str) -> str:
    """Check the name of a flow or system: an empty one is refused."""
    if not name:
        raise AdmissionError(what, "is empty", "give it a name")
    return text_of(name)


def list_of(what: str, names: Iterable[str]) -> list[str]:
    """List names, and refuse a single text, whose characters would be taken for names."""
    if isinstance(names, str):
        raise AdmissionError(what, f"is the single text {names!r}", "give a list of names")
    return list(names)


def sinks_of(names: Iterable[str]) -> list[str]:
    """Check the names of the sinks of a flow."""
    return [name_of("data_sinks", name) for name in list_of("data_sinks", names)]
