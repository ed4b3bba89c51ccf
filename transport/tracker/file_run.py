"""A file run: one file's passage through its flows, and the OpenLineage run events that report it.

A file is a run of the job that is named after its data source. Its beginning is START. Every end of every
path is a terminal event that carries the whole record in the facet `waybill_deltaFile`, so each can be
understood alone. FILTERED and SPLIT are COMPLETE in OpenLineage, because the run did what it was meant to do.
Only the end of a path that reached a sink names it as an output, because backends count each naming as a
write. A sink whose dataset is known is named as that dataset, with the sink's name in the standard facet
`symlinks`.

The OpenLineage client is imported only where an event is made, so that importing the Tracker does not load
it.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import traceback
from collections.abc import (
    Callable,
    Iterable,
    Mapping,  # msgspec reads it at run time
    Sequence,
)
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar
from uuid import UUID

import msgspec

from waybill.facets import (
    DATA_SINK,
    DELTA_FILE_FACET,
    FINGERPRINT_FACET,
    PRODUCER,
    FinalState,
    parse_instant_us,
)
from waybill.facets.causes import CAUSED_BY, chain_of, mask_secrets
from waybill.facets.json_events import instant, new_run_id

from ..clock import SYSTEM_CLOCK
from ..errors import AdmissionError
from ..fingerprints import ALGORITHM, Fingerprint
from .datasets import Dataset, dataset_of

if TYPE_CHECKING:
    from openlineage.client.event_v2 import OutputDataset, RunEvent
    from openlineage.client.facet_v2 import InputDatasetFacet, JobFacet, RunFacet

    from waybill.facets.context import Around
    from waybill.facets.delta_file import WaybillDeltaFileRunFacet

    from ..home import Home
    from .datasets import DatasetName

    DataSinks = Mapping[str, DatasetName]
    """The datasets that sinks write, by the sinks' names."""

_EVENT_TYPES: Final = {None: "START", FinalState.ERROR: "FAIL", FinalState.CANCELLED: "ABORT"}

SINKS_MAX: Final = 1_000
"""Of how many sinks the datasets are remembered; for others, each call says it."""

JOINED_MAX: Final = 1_000
"""The most files that one join takes: each event of the new file names them all, in about 100 bytes each."""

_UNKNOWN_SOURCE: Final = "unknown"
"""Stands for the job of a file of which only the did is known: the facet `jobDependencies` requires one."""

log = logging.getLogger("waybill.transport")

_Name = TypeVar("_Name", bound="str | os.PathLike[str]")


class Content(msgspec.Struct, frozen=True):
    """Which content a file has, and whether it is to be processed even if that is known."""

    fingerprint: Fingerprint
    forced: bool


class FileIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a file that are the same on all its paths.

    Attributes:
        did: a UUIDv7, which is also the id of its OpenLineage run.
        system_name: the instance that handles it; the namespace of its job.
        data_source: the flow that it arrived by; the name of its job. Like the filename, it is empty for a
            parent of which only the did is known.
        parent: the file that it was split from, or the first of those that were joined.
        joined: all files that were joined into it, without their own parents; empty if it was not joined.
        content: None: its fingerprint was not asked for.
    """

    did: str = msgspec.field(default_factory=lambda: new_run_id(SYSTEM_CLOCK.now_ms()))
    parent: FileIdentity | None = None
    joined: tuple[FileIdentity, ...] = ()
    system_name: str
    data_source: str
    filename: str
    created_ms: int
    content: Content | None = None


class Failure(msgspec.Struct, frozen=True):
    """Why a file failed: the exception's type and message, or the given message."""

    message: str
    stack_trace: str | None = None


class PathState(msgspec.Struct, frozen=True, kw_only=True):
    """What one event reports: that the file has begun or, with a final state, how the path ended.

    Attributes:
        is_adopted: whether it goes on with a file that has begun already.
        dataset: what the sink writes; None: as said before, or the sink itself.
        columns: the names and types of the dataset's columns, if they are known.
    """

    at_ms: int
    is_adopted: bool = False
    annotations: Mapping[str, str]
    final_state: FinalState | None = None
    transforms: tuple[str, ...] = ()
    data_sink: str | None = None
    dataset: Dataset | None = None
    columns: tuple[tuple[str, str], ...] = ()
    size_bytes: int | None = None
    failure: Failure | None = None


class OfOneProcess:
    """An object that cannot be pickled, because it uses its process's connection to the journal."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be sent to another process; make a Tracker there, within the "
            "function that runs there, and pass what it needs as plain values"
        )


class KnownSinks:
    """The datasets that the sinks of data sources write, as declared or as said when a file left by them."""

    def __init__(self) -> None:
        self._of: Final[dict[tuple[str, str], Dataset]] = {}

    def learn(self, data_source: str, data_sinks: Mapping[str, Dataset]) -> None:
        """Remember what sinks of a data source write."""
        for sink, dataset in data_sinks.items():
            if (data_source, sink) in self._of or len(self._of) < SINKS_MAX:
                self._of[data_source, sink] = dataset

    def of(self, data_source: str, sink: str) -> Dataset | None:
        """What a sink of a data source writes; None if that is not known."""
        return self._of.get((data_source, sink))


class FileRun(OfOneProcess):
    """The state that the paths of one file share: its identity, its clock, and where its events go."""

    def __init__(
        self,
        identity: FileIdentity,
        emit: Callable[[RunEvent], None],
        sinks: KnownSinks,
        home: Home | None,
    ) -> None:
        self.identity: Final = identity
        self.sinks: Final = sinks
        self.duplicate_of: str | None = None
        """The first file with the same content, if that was looked for and is another one."""
        self.recorded: Final[list[BaseException]] = []
        """The exceptions that ended branches; cleared when the file's own block ends."""
        self._emit: Final = emit
        self._home: Final = home
        self._lock: Final = threading.Lock()
        self._last_ms = identity.created_ms - 1

    def child(self, filename: str, data_source: str, created_ms: int) -> FileRun:
        """Make the run of a file that was split from this one, without emitting an event."""
        identity = FileIdentity(
            parent=self.identity,
            system_name=self.identity.system_name,
            data_source=data_source,
            filename=filename,
            created_ms=created_ms,
        )
        return FileRun(identity, self._emit, self.sinks, self._home)

    def tell(self, state: PathState) -> None:
        """Emit the event that reports a path's state."""
        source = self.identity.data_source
        if state.final_state is None:
            self.check_keys(state.annotations)
        if state.data_sink is not None and state.dataset is not None:
            self.sinks.learn(source, {state.data_sink: state.dataset})
        elif state.data_sink is not None:
            state = msgspec.structs.replace(state, dataset=self.sinks.of(source, state.data_sink))
        self._emit(_event_of(self.identity, state))

    def note_transforms(self, transforms: Sequence[str], *, waits: bool) -> None:
        """Note in the home, if there is one, that a path has begun these transforms, the last one now."""
        if self._home is not None:
            self._home.note_transforms(self.identity.did, transforms, waits=waits)

    def check_keys(self, annotations: Iterable[str]) -> None:
        """Warn of annotations that the home, if there is one, keeps out of the records."""
        if self._home is not None:
            for key in filter(self._home.settings.annotation_rule.is_dropped, annotations):
                _warn_of_dropped(key)

    def next_instant_ms(self) -> int:
        """Take an instant later than all earlier ones of this file, even if the clock goes back."""
        with self._lock:
            self._last_ms = max(SYSTEM_CLOCK.now_ms(), self._last_ms + 1)
            return self._last_ms


def _event_of(file: FileIdentity, state: PathState) -> RunEvent:
    """Build the event that reports a path's state."""
    from openlineage.client.event_v2 import InputDataset, Job, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import parent_run

    run_facets: dict[str, RunFacet] = {DELTA_FILE_FACET: _delta_file(file, state)}
    if file.parent is not None and file.parent.data_source:
        run_facets["parent"] = parent_run.ParentRunFacet(
            run=parent_run.Run(file.parent.did),
            job=parent_run.Job(file.parent.system_name, file.parent.data_source),
            producer=PRODUCER,
        )
    if file.joined:
        run_facets["jobDependencies"] = _joined_from(file.joined)
    if state.failure is not None:
        run_facets["errorMessage"] = error_of(state.failure)
    return RunEvent(
        eventTime=instant(state.at_ms),
        eventType=RunState(
            "RUNNING" if state.is_adopted else _EVENT_TYPES.get(state.final_state, "COMPLETE")
        ),
        run=Run(file.did, run_facets),
        job=Job(file.system_name, file.data_source, {"jobType": job_type_of("FILE")}),
        inputs=[InputDataset(file.system_name, file.data_source, inputFacets=_input_facets_of(file, state))],
        outputs=_outputs_of(file.system_name, state),
        producer=PRODUCER,
    )


def error_of(failure: Failure) -> RunFacet:
    """The standard facet `errorMessage` of a run that failed."""
    from openlineage.client.facet_v2 import error_message_run

    return error_message_run.ErrorMessageRunFacet(
        message=failure.message,
        programmingLanguage="PYTHON",
        stackTrace=failure.stack_trace,
        producer=PRODUCER,
    )


def job_type_of(kind: str) -> JobFacet:
    """The standard facet `jobType` of a job of ours, of a kind such as ``FILE``."""
    from openlineage.client.facet_v2 import job_type_job

    return job_type_job.JobTypeJobFacet(
        processingType="BATCH", integration="WAYBILL", jobType=kind, producer=PRODUCER
    )


def parent_of(around: Around) -> RunFacet:
    """The standard facet `parent` of a run that is a part of another one."""
    from openlineage.client.facet_v2 import parent_run

    root = parent_run.Root(
        run=parent_run.RootRun(around.root.run),
        job=parent_run.RootJob(around.root.namespace, around.root.job),
    )
    return parent_run.ParentRunFacet(
        run=parent_run.Run(around.parent.run),
        job=parent_run.Job(around.parent.namespace, around.parent.job),
        root=root,
        producer=PRODUCER,
    )


def _outputs_of(system_name: str, state: PathState) -> list[OutputDataset]:
    """The dataset of the sink that the path reached, with its statistics and columns."""
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import (
        DatasetFacet,
        output_statistics_output_dataset,
        schema_dataset,
        symlinks_dataset,
    )

    if state.data_sink is None:
        return []
    facets: dict[str, DatasetFacet] = {}
    if state.dataset is not None:
        named = symlinks_dataset.Identifier(system_name, state.data_sink, DATA_SINK)
        facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet(identifiers=[named], producer=PRODUCER)
    if state.columns:
        fields = [schema_dataset.SchemaDatasetFacetFields(name, kind) for name, kind in state.columns]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=fields, producer=PRODUCER)
    output = OutputDataset(*(state.dataset or (system_name, state.data_sink)), facets=facets)
    if state.size_bytes is not None:
        size = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            size=state.size_bytes, fileCount=1, producer=PRODUCER
        )
        output.outputFacets = {"outputStatistics": size}
    return [output]


def _input_facets_of(file: FileIdentity, state: PathState) -> dict[str, InputDatasetFacet]:
    """What the run has read; told once, by the event that the file has begun."""
    if file.content is None or state.final_state is not None:
        return {}
    from waybill.facets import WaybillFingerprintInputDatasetFacet

    found = file.content.fingerprint
    facet = WaybillFingerprintInputDatasetFacet(
        fingerprint=str(found),
        algorithm=ALGORITHM,
        inputBytes=found.input_bytes,
        contentBytes=found.content_bytes,
        forced=file.content.forced or None,
        producer=PRODUCER,
    )
    return {FINGERPRINT_FACET: facet}


def _joined_from(files: Iterable[FileIdentity]) -> RunFacet:
    """Name the files that were joined: the standard `parent` facet has room for one only."""
    from openlineage.client.facet_v2 import job_dependencies_run as dependencies

    upstream = [
        dependencies.JobDependency(
            job=dependencies.JobIdentifier(file.system_name, file.data_source or _UNKNOWN_SOURCE),
            run=dependencies.RunIdentifier(file.did),
        )
        for file in files
    ]
    return dependencies.JobDependenciesRunFacet(upstream=upstream, producer=PRODUCER)


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
        created=instant(file.created_ms),
        completed=instant(state.at_ms) if state.final_state else None,
        annotations=dict(state.annotations) or None,
        producer=PRODUCER,
    )


def failure_of(cause: BaseException | str) -> Failure:
    """Describe a failure, even if the exception cannot be printed."""
    if isinstance(cause, str):
        return Failure(text_of(mask_secrets(cause)))
    try:
        message = f"\n{CAUSED_BY} ".join(_words_of(one) for one in chain_of(cause))
        trace = "".join(traceback.format_exception(cause))
    except Exception:  # noqa: BLE001 - the exception's own code runs here and may raise anything
        return Failure(_name_of(cause))
    return Failure(text_of(mask_secrets(message)), text_of(mask_secrets(trace)))


def _words_of(error: BaseException) -> str:
    words = str(error)
    return f"{_name_of(error)}: {words}" if words else _name_of(error)


def _name_of(error: BaseException) -> str:
    """The class, with its module unless it is Python's own or the program's."""
    kind = type(error)
    is_plain = kind.__module__ in {"builtins", "__main__", "__mp_main__"}
    return kind.__qualname__ if is_plain else f"{kind.__module__}.{kind.__qualname__}"


def text_of(text: str) -> str:
    """Escape what some backends refuse: NUL, and lone surrogates in file names that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def filename_of(name: str | os.PathLike[str]) -> str:
    """Turn a file's name or path into text."""
    return text_of(os.fsdecode(name))


@functools.lru_cache(maxsize=1_000)
def _warn_of_dropped(key: str) -> None:
    """Say once that no record will have a key."""
    log.warning(
        "no record will have the annotation %r: the setting provenance_annotations_allowed does not name it; "
        "add it there, or * for every key",
        key,
    )


def annotations_of(annotations: Mapping[str, object] | None) -> dict[str, str]:
    """Turn annotations into strings: `str(value)`, or true or false for a bool. None is refused."""
    texts = {}
    for key, value in (annotations or {}).items():
        if value is None:
            raise AdmissionError(f"annotations.{key}", "is None", "leave it out, or give it a value")
        texts[text_of(key)] = text_of(str(value).lower() if isinstance(value, bool) else str(value))
    return texts


def did_of(what: str, did: str) -> str:
    """Check a did, and spell it as Waybill does; OpenLineage takes only UUIDs."""
    try:
        return str(UUID(did))
    except ValueError:
        raise AdmissionError(what, f"is {did!r}", "give the did of a file, which is a UUID") from None


def instant_ms_of(text: str | None) -> int | None:
    """An ISO 8601 instant in epoch milliseconds; None if there is none, or none that can be read."""
    try:
        return None if text is None else parse_instant_us(text) // 1_000
    except ValueError:
        return None


def name_of(what: str, name: str) -> str:
    """Check the name of a flow or system: an empty one is refused."""
    if not name:
        raise AdmissionError(what, "is empty", "give it a name")
    return text_of(name)


def list_of(what: str, names: Iterable[_Name]) -> list[_Name]:
    """List names, and refuse a single string, whose characters would be taken for names."""
    if isinstance(names, (str, os.PathLike)):
        raise AdmissionError(what, f"is the single name {str(names)!r}", "give a list of names")
    return list(names)


def written_by_sink(given: DatasetName) -> Dataset:
    """Check the dataset that a sink writes."""
    return Dataset(*map(text_of, dataset_of(given)))


def sinks_of(given: DataSinks | None) -> dict[str, Dataset]:
    """Check the datasets that the sinks of a flow write.

    Raises:
        AdmissionError: they are no dict, or a name or a dataset is empty.
    """
    if given is not None and not isinstance(given, Mapping):
        raise AdmissionError("data_sinks", f"is {given!r}", "give a dict: the datasets by the sinks' names")
    return {name_of("data_sinks", name): written_by_sink(dataset) for name, dataset in (given or {}).items()}
