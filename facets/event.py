# ruff: noqa: N815 - the attributes are OpenLineage's own field names, so that a reader of its specification knows them.
"""OpenLineage events, as far as Waybill reads them.

The structs follow OpenLineage 2-0-2 (https://openlineage.io/spec/2-0-2/OpenLineage.json). Keys and facets
that are not named here are skipped while decoding, never refused, because the original bytes are stored.
"""

from __future__ import annotations

import functools
import re
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Final, TypeVar

import msgspec

from .dids import canonicalize_dids
from .record import AFTER_LAST_MS, FIRST_MS, UNREADABLE, FinalState, NonEmpty, SentFields

DELTA_FILE_FACET: Final = "waybill_deltaFile"
"""The key of `waybill.facets.delta_file.WaybillDeltaFileRunFacet` among a run's facets."""

DATA_SINK: Final = "DATA_SINK"
"""The type of a dataset's identifier in the facet `symlinks` that is a data sink: its system and its name."""

SINKS_FACET: Final = "waybill_sinks"
"""Has these identifiers for Marquez, whose page lists each name in `symlinks`, but shows nothing under it."""

INFERRED_FACET: Final = "waybill_inferred"
"""The key of `waybill.facets.inferred.WaybillInferredRunFacet` among a run's facets."""

EVIDENCE_FACET: Final = "waybill_evidence"
"""The key of `waybill.facets.inferred.WaybillEvidenceRunFacet` among a run's facets."""

SUMMARY_FACET: Final = "waybill_summary"
"""The key of `waybill.facets.summary.WaybillSummaryRunFacet` among a run's facets."""

PRESENTED_FACET: Final = "waybill_presented"
"""The key, among a run's facets, of the job name and the parent that an event had before it went to Marquez.

Its schema is `WaybillPresentedRunFacet`. `decode_event` gives the event both back.
"""

FINGERPRINT_FACET: Final = "waybill_fingerprint"
"""The key of `waybill.facets.fingerprint.WaybillFingerprintInputDatasetFacet` among an input's facets."""

_URN: Final = "urn:waybill"
"""The start of our own identifiers: names, not addresses, so that none depends on a domain or a site."""

PRODUCER: Final = f"{_URN}:producer"
"""The URI of Waybill as the producer of an event or a facet."""

FACET_URN: Final = f"{_URN}:facet:"
"""The start of the identifier of a facet's schema; the name follows that `read_facet_schemas` has for it."""


def facet_schema_url(name: str, version: str = "1-0-0") -> str:
    """The `_schemaURL` of one of our facets, by the name of its class.

    The version in it is a SchemaVer, and a released version never changes.
    """
    return f"{FACET_URN}{name}-{version}#/$defs/{name}"


class EventType(StrEnum):
    """The type of an event; a type that OpenLineage does not know becomes OTHER."""

    START = "START"
    RUNNING = "RUNNING"
    OTHER = "OTHER"
    COMPLETE = "COMPLETE"
    ABORT = "ABORT"
    FAIL = "FAIL"

    @classmethod
    def _missing_(cls, value: object) -> EventType:
        # Marquez ignores case and accepts any word, so a stored event may contain one.
        return cls.__members__.get(str(value).upper(), cls.OTHER)


SEVERITY: Final = {EventType.FAIL: 0, EventType.ABORT: 1, EventType.COMPLETE: 2}
"""The types that end a run. Of several ends the lowest counts: Spark's listener sends COMPLETE after FAIL."""


_Size = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_ABSENT: Final = msgspec.Raw()
_T = TypeVar("_T")


def read_facet(decoder: msgspec.json.Decoder[_T], facet: msgspec.Raw | bytes | str) -> _T | None:
    """Decode a facet that was left undecoded; None if it is absent or malformed: then it says nothing."""
    try:
        return decoder.decode(facet) if facet else None
    except UNREADABLE:
        return None


def dataset_text(namespace: str, name: str) -> str:
    """A dataset as one text: ``file:/data/lake``, ``s3://lake/a.csv``, ``warehouse/orders``, or its name."""
    if not namespace:
        return name
    if not name.startswith("/"):
        return f"{namespace}/{name}"
    if "://" in namespace:
        return namespace + name
    return f"{namespace}/{name}" if ":" in namespace else f"{namespace}:{name}"


class DatasetName(msgspec.Struct, frozen=True, gc=False):
    """A dataset's identity: the namespace of its store and its name there."""

    namespace: str
    name: str

    @property
    def text(self) -> str:
        """Both as one text."""
        return dataset_text(self.namespace, self.name)


class Symlink(DatasetName, frozen=True, gc=False):
    """Another name of a dataset."""

    type: str = ""


class _Symlinks(msgspec.Struct, frozen=True, gc=False):
    identifiers: tuple[Symlink, ...] = ()


class _Symlinked(msgspec.Struct, frozen=True, gc=False):
    symlinks: _Symlinks = _Symlinks()
    sinks: _Symlinks = msgspec.field(default=_Symlinks(), name=SINKS_FACET)


_SYMLINKED: Final = msgspec.json.Decoder(_Symlinked)
_SINK: Final = DATA_SINK.encode()


class RunDataset(DatasetName, frozen=True, gc=False):
    """A dataset that a run reads or writes, with its facets."""

    facets: msgspec.Raw = _ABSENT

    @property
    def recorded(self) -> tuple[str, str]:
        """The namespace and the name that a record has: of the sink, where it is the other name of one."""
        return next(iter(self.sinks), (self.namespace, self.name))

    @property
    def sinks(self) -> list[tuple[str, str]]:
        """The data sinks that it is another name of, each by its system and its name."""
        if _SINK not in bytes(self.facets):
            return []
        symlinked = read_facet(_SYMLINKED, self.facets) or _Symlinked()
        return [
            (one.namespace, one.name)
            for one in (*symlinked.sinks.identifiers, *symlinked.symlinks.identifiers)
            if one.type == DATA_SINK and "\0" not in one.namespace + one.name
        ]


class InputFingerprint(msgspec.Struct, frozen=True, gc=False):
    """The `waybill_fingerprint` input dataset facet: which content the input had in this run."""

    fingerprint: Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9-]+:[0-9a-f]{16,128}\Z")]
    inputBytes: _Size | None = None
    contentBytes: _Size | None = None
    forced: bool = False


class _Fingerprinted(msgspec.Struct, frozen=True, gc=False):
    content: InputFingerprint | None = msgspec.field(default=None, name=FINGERPRINT_FACET)


_FINGERPRINTED: Final = msgspec.json.Decoder(_Fingerprinted)
_FINGERPRINT: Final = FINGERPRINT_FACET.encode()


class InputDataset(RunDataset, frozen=True, gc=False):
    """A dataset that a run names as its input, with the facets that show what the run read of it."""

    input_facets: msgspec.Raw = msgspec.field(default=_ABSENT, name="inputFacets")

    @property
    def fingerprint(self) -> InputFingerprint | None:
        """Which content it had; None if that is not said, or in another form than ours."""
        if _FINGERPRINT not in bytes(self.input_facets):
            return None
        fingerprinted = read_facet(_FINGERPRINTED, self.input_facets)
        return None if fingerprinted is None else fingerprinted.content


class OutputDataset(RunDataset, frozen=True, gc=False):
    """A dataset that a run names as its output, with the facets that show what the run did to it."""

    output_facets: msgspec.Raw = msgspec.field(default=_ABSENT, name="outputFacets")

    @property
    def size_bytes(self) -> int:
        """How much was written, according to the standard facet `outputStatistics`; 0 if it does not say."""
        return max(self._statistics.size or 0, 0)

    @property
    def has_files(self) -> bool:
        """Whether the same facet counts files that were written."""
        return (self._statistics.fileCount or 0) > 0

    @property
    def _statistics(self) -> _Statistics:
        if _STATISTICS not in bytes(self.output_facets):
            return _Statistics()
        return (read_facet(_MEASURED, self.output_facets) or _Measured()).statistics


class _Statistics(msgspec.Struct, frozen=True, gc=False):
    size: int | None = None
    fileCount: int | None = None


class _Measured(msgspec.Struct, frozen=True, gc=False):
    statistics: _Statistics = msgspec.field(default=_Statistics(), name="outputStatistics")


_STATISTICS: Final = b"outputStatistics"
_MEASURED: Final = msgspec.json.Decoder(_Measured)


class Job(msgspec.Struct, frozen=True, gc=False):
    """A job's identity."""

    namespace: str
    name: str


class JobType(msgspec.Struct, frozen=True, gc=False):
    """The standard `jobType` job facet."""

    integration: str = ""
    processingType: str = ""
    jobType: str | None = None


class JobFacets(msgspec.Struct, frozen=True, gc=False):
    """The standard job facets that somebody reads, undecoded, so that a malformed one hides no other."""

    job_type: msgspec.Raw = msgspec.field(default=_ABSENT, name="jobType")
    code: msgspec.Raw = msgspec.field(default=_ABSENT, name="sourceCodeLocation")
    documentation: msgspec.Raw = _ABSENT
    ownership: msgspec.Raw = _ABSENT
    tags: msgspec.Raw = _ABSENT


class _CodeLocation(msgspec.Struct, frozen=True, gc=False):
    version: str | None = None


_JOB_FACETS: Final = msgspec.json.Decoder(JobFacets)
_JOB_TYPE: Final = msgspec.json.Decoder(JobType | None)
_CODE: Final = msgspec.json.Decoder(_CodeLocation | None)
_UNKNOWN_TYPE: Final = JobType()


class RunJob(Job, frozen=True, gc=False):
    """The job of a run, with its facets."""

    facets: msgspec.Raw = _ABSENT

    def read_facets(self) -> JobFacets:
        """The facets that somebody reads; none if they are no object."""
        return read_facet(_JOB_FACETS, self.facets) or JobFacets()

    @property
    def job_type(self) -> JobType:
        """The kind of the job; all empty if it is not said."""
        if _JOB_TYPE_KEY not in bytes(self.facets):
            return _UNKNOWN_TYPE
        return read_facet(_JOB_TYPE, self.read_facets().job_type) or _UNKNOWN_TYPE

    @property
    def version(self) -> str | None:
        """The version of the job's code, from the standard facet `sourceCodeLocation`."""
        if _CODE_KEY not in bytes(self.facets):
            return None
        code = read_facet(_CODE, self.read_facets().code)
        return None if code is None else code.version


_JOB_TYPE_KEY: Final = b"jobType"
_CODE_KEY: Final = b"sourceCodeLocation"
"""The keys of facets that most jobs lack: looking for them is faster than decoding."""


class ParentRun(msgspec.Struct, frozen=True, gc=False):
    """The run that started this one; its id has the canonical form."""

    runId: NonEmpty

    def __post_init__(self) -> None:
        """Spell the id in one way."""
        canonicalize_dids(self, "runId")


class Parent(msgspec.Struct, frozen=True, gc=False):
    """The standard `parent` run facet."""

    run: ParentRun
    job: Job


class ErrorMessage(msgspec.Struct, frozen=True, gc=False):
    """The standard `errorMessage` run facet; of an exception without a message, there is only the trace."""

    message: str | None = None
    stack_trace: str | None = msgspec.field(default=None, name="stackTrace")

    @property
    def text(self) -> str:
        """The message; without one, the stack trace."""
        return self.message or self.stack_trace or ""


class RunTag(msgspec.Struct, frozen=True, gc=False):
    """One entry of the standard `tags` run facet; `source` is who tagged the run."""

    key: str
    value: str
    source: object = None


class RunTags(msgspec.Struct, frozen=True, gc=False):
    """The standard `tags` run facet."""

    tags: tuple[RunTag, ...] | None = None


class Inferred(msgspec.Struct, frozen=True, gc=False):
    """The `waybill_inferred` run facet: nobody reported this, it was inferred."""

    reason: str = ""


class Evidence(msgspec.Struct, frozen=True, gc=False):
    """The `waybill_evidence` run facet: who has seen how the run ended."""

    source: str = ""


class Summary(msgspec.Struct, frozen=True, gc=False):
    """The `waybill_summary` run facet: the run stands for many files; times are ISO 8601 instants."""

    records: int = 0
    events: int = 0
    systemName: str = ""
    dataSource: str = ""
    windowStart: str = ""
    windowEnd: str = ""
    transform: str = ""


_SUMMARY: Final = msgspec.json.Decoder(Summary)


class Presented(msgspec.Struct, frozen=True, gc=False):
    """The `waybill_presented` run facet: what the event had before it was changed for Marquez's page."""

    jobName: str
    parent: Parent


class SparkException(msgspec.Struct, frozen=True, gc=False):
    """The `spark.exception` run facet of Spark's listener."""

    message: str | None = None
    stack_trace: str | None = msgspec.field(default=None, name="stackTrace")


_EXCEPTION: Final = msgspec.json.Decoder(SparkException)


class DeltaFile(SentFields, frozen=True, kw_only=True, rename="camel", gc=False):
    """The `waybill_deltaFile` run facet: its instants are in ISO 8601, and its ids are canonical."""

    final_state: FinalState | None = None
    created: str | None = None
    completed: str | None = None
    annotations: dict[str, str] | None = None

    def __post_init__(self) -> None:
        """Spell the ids in one way."""
        canonicalize_dids(self, "did", "parent_did")


class RunFacets(msgspec.Struct, frozen=True, gc=False):
    """The run facets that decide a record.

    The Spark listener's own facets follow no published schema, so they stay undecoded here and may hold
    anything. So does a summary's, because a summary that cannot be read is still no file, and the
    dependencies', which few events have. Of the others, only our own `waybill_deltaFile` must be as its
    schema says: one that is not would leave a record of another file. Any other that cannot be read says
    nothing.
    """

    parent: Parent | None = None
    error_message: ErrorMessage | None = msgspec.field(default=None, name="errorMessage")
    tags: RunTags | None = None
    delta_file: DeltaFile | None = msgspec.field(default=None, name="waybill_deltaFile")
    inferred: Inferred | None = msgspec.field(default=None, name="waybill_inferred")
    evidence: Evidence | None = msgspec.field(default=None, name="waybill_evidence")
    presented: Presented | None = msgspec.field(default=None, name="waybill_presented")
    summary: msgspec.Raw = msgspec.field(default=_ABSENT, name="waybill_summary")
    job_dependencies: msgspec.Raw = msgspec.field(default=_ABSENT, name="jobDependencies")
    spark_exception: msgspec.Raw = msgspec.field(default=_ABSENT, name="spark.exception")
    spark_properties: msgspec.Raw = msgspec.field(default=_ABSENT, name="spark_properties")
    spark_job_details: msgspec.Raw = msgspec.field(default=_ABSENT, name="spark_jobDetails")
    spark_application: msgspec.Raw = msgspec.field(default=_ABSENT, name="spark_applicationDetails")
    external_query: msgspec.Raw = msgspec.field(default=_ABSENT, name="externalQuery")

    def read_summary(self) -> Summary | None:
        """What the run says about the files that it stands for; None if that is absent or malformed."""
        return read_facet(_SUMMARY, self.summary)

    def read_exception(self) -> SparkException | None:
        """The exception that Spark's listener reported; None if there is none, or it is malformed."""
        return read_facet(_EXCEPTION, self.spark_exception)


class _LooseTags(msgspec.Struct, frozen=True, gc=False):
    tags: tuple[msgspec.Raw, ...] | None = None


_TAG: Final = msgspec.json.Decoder(RunTag)
_LOOSE_TAGS: Final = msgspec.json.Decoder(_LooseTags)
_READ_ALONE: Final[dict[str, msgspec.json.Decoder[msgspec.Struct | None]]] = {
    "parent": msgspec.json.Decoder(Parent | None),
    "errorMessage": msgspec.json.Decoder(ErrorMessage | None),
    "tags": msgspec.json.Decoder(RunTags | None),
    "waybill_inferred": msgspec.json.Decoder(Inferred | None),
    "waybill_evidence": msgspec.json.Decoder(Evidence | None),
    "waybill_presented": msgspec.json.Decoder(Presented | None),
}
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _without_unreadable_facets(body: bytes | bytearray | memoryview) -> bytes | bytearray | memoryview:
    """An event without the run facets, and the tags, that `decode_event` cannot read.

    `waybill_deltaFile` stays as it is.
    """
    try:
        event = _OBJECT.decode(body)
        run = _OBJECT.decode(event["run"])
        facets = _OBJECT.decode(run["facets"])
    except (*UNREADABLE, KeyError):
        return body
    for name, decoder in _READ_ALONE.items():
        if name in facets and read_facet(decoder, facets[name]) is None:
            facet = facets.pop(name)
            loose = read_facet(_LOOSE_TAGS, facet) if name == "tags" else None
            if loose is not None:
                tags = [tag for tag in loose.tags or () if read_facet(_TAG, tag) is not None]
                facets[name] = msgspec.Raw(msgspec.json.encode({"tags": tags}))
    run["facets"] = msgspec.Raw(msgspec.json.encode(facets))
    event["run"] = msgspec.Raw(msgspec.json.encode(run))
    return msgspec.json.encode(event)


class Run(msgspec.Struct, frozen=True, gc=False):
    """One run of a job. `runId` should be a UUID, here in its canonical form, yet may be any text."""

    runId: NonEmpty
    facets: RunFacets | None = None

    def __post_init__(self) -> None:
        """Spell the id in one way."""
        canonicalize_dids(self, "runId")


class RunEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What was observed of a run at one instant."""

    eventTime: str
    eventType: EventType
    run: Run
    job: RunJob
    producer: str
    schemaURL: str | None = None
    inputs: tuple[InputDataset, ...] | None = None
    outputs: tuple[OutputDataset, ...] | None = None


class JobEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Static facts about a job; it belongs to no run and gives no record."""

    eventTime: str
    job: RunJob
    producer: str
    schemaURL: str | None = None
    inputs: tuple[RunDataset, ...] | None = None
    outputs: tuple[OutputDataset, ...] | None = None


class DatasetEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Static facts about a dataset; it belongs to no run and gives no record."""

    eventTime: str
    dataset: RunDataset
    producer: str
    schemaURL: str | None = None


Event = RunEvent | JobEvent | DatasetEvent


class _Kind(msgspec.Struct, frozen=True, gc=False):
    schemaURL: msgspec.Raw = _ABSENT


_RUN_EVENT = msgspec.json.Decoder(RunEvent)
_KIND = msgspec.json.Decoder(_Kind)
_STATIC: dict[str, msgspec.json.Decoder[JobEvent] | msgspec.json.Decoder[DatasetEvent]] = {
    "JobEvent": msgspec.json.Decoder(JobEvent),
    "DatasetEvent": msgspec.json.Decoder(DatasetEvent),
}


@functools.lru_cache(maxsize=64)
def _static_kind(schema_url: str) -> str | None:
    # The last path segment shows the kind; Marquez uses it too.
    kind = schema_url.rpartition("/")[2]
    return kind if kind in _STATIC else None


def decode_event(body: bytes | bytearray | memoryview) -> Event:
    """Decode one event, of the kind that its `schemaURL` ends with; a run event if it names none.

    An event that was changed for Marquez's page is as it was before. A facet that cannot be read is left out.

    Raises:
        msgspec.ValidationError: a known field, or one of `waybill_deltaFile`, is absent or of the wrong
            type; the message ends with its path.
        msgspec.DecodeError: the bytes are not JSON.
        UnicodeDecodeError: a text is not UTF-8.
        RecursionError: the JSON is nested too deeply.
    """
    # Nearly every event is a run event, so decode it as one and check the kind afterwards.
    try:
        event = _RUN_EVENT.decode(body)
    except msgspec.ValidationError:
        kind = _static_kind(bytes(_KIND.decode(body).schemaURL).decode().strip('"'))
        if kind is not None:
            return _STATIC[kind].decode(body)
        event = _RUN_EVENT.decode(_without_unreadable_facets(body))
    kind = None if event.schemaURL is None else _static_kind(event.schemaURL)
    if kind is not None:
        return _STATIC[kind].decode(body)
    facets = event.run.facets
    if facets is None or facets.presented is None:
        return event
    return _as_accepted(event, facets, facets.presented)


def fingerprints_of(event: RunEvent) -> tuple[InputFingerprint, ...]:
    """Which contents the inputs of a run had, as far as the event says so."""
    return tuple(one for dataset in event.inputs or () if (one := dataset.fingerprint) is not None)


def _as_accepted(event: RunEvent, facets: RunFacets, presented: Presented) -> RunEvent:
    """An event with the job name and the parent that it had before it was changed for Marquez's page."""
    replace = msgspec.structs.replace
    run = replace(event.run, facets=replace(facets, parent=presented.parent, presented=None))
    return replace(event, run=run, job=replace(event.job, name=presented.jobName))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_END_OF_DAY = re.compile(r"(.{10}T)24(:00(?::00(?:[.,]0+)?)?(?:Z|[+-].*)?)")


def parse_instant_us(text: str) -> int:
    """Parse an ISO 8601 date and time into microseconds since 1970-01-01T00:00:00Z.

    Without an offset it is taken as UTC. Digits past the microsecond are cut off. What Java's
    `ZonedDateTime` prints is read too: no seconds, nine fraction digits, a region in brackets. So is hour 24,
    the end of a day.

    Raises:
        ValueError: the text is not a date and time, or not after 1970-01-01T00:00:00Z and before the year
            10000.
    """
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        instant = _parse_rare(text)
    if text[10:11] not in ("T", "t", " "):
        raise ValueError(f"{text[:40]!r} is no ISO 8601 date and time")
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    since = instant - _EPOCH
    time_us = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if not FIRST_MS * 1_000 <= time_us < AFTER_LAST_MS * 1_000:
        raise ValueError(f"{text[:40]!r} is not after 1970-01-01T00:00:00Z and before the year 10000")
    return time_us


def _parse_rare(text: str) -> datetime:
    plain = text.partition("[")[0].upper()
    end_of_day = _END_OF_DAY.fullmatch(plain)
    try:
        if end_of_day is None:
            return datetime.fromisoformat(plain)
        return datetime.fromisoformat(end_of_day[1] + "00" + end_of_day[2]) + timedelta(days=1)
    except (ValueError, OverflowError):
        raise ValueError(f"{text[:40]!r} is no ISO 8601 date and time") from None
