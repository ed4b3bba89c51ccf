"""Every public name of every room, used as a user would, for mypy and pyright to judge; nothing is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, assert_type

from msgspec import MsgspecError
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset
from openlineage.client.generated.base import RunFacet
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import waybill
from waybill.cli import main
from waybill.collector import ApiKey, Keys, Role, serve
from waybill.exporter import (
    Compactor,
    DestinationError,
    IncompleteError,
    Query,
    RebuildError,
    Source,
    SourceError,
    SourceUnreachableError,
    Stored,
    Wanted,
    age_off,
    age_off_archive,
    check,
    compare,
    explain,
    export,
    open_archive,
    open_destination,
    open_keys,
    open_layout,
    open_source,
    rebuild,
)
from waybill.exporter.archive import Archive
from waybill.exporter.compaction import CompactionReport, RawWriter, Retraction, compact_remote
from waybill.exporter.exporting import Destination, Exported
from waybill.exporter.health import Problem, ProblemKind, problems_of
from waybill.exporter.layout import Layout
from waybill.exporter.ledger import LedgerState, read_ledger
from waybill.exporter.names import Hour, RawName, hour_of, safe_name
from waybill.exporter.quarantine import Quarantined, list_quarantined
from waybill.exporter.query import (
    STATS_BY,
    BacklogError,
    CursorError,
    Difference,
    Dimension,
    EntriesGoneError,
    Stats,
    Tail,
    TailReader,
    TooManyError,
    cursor_of,
    poison_note,
    read_as_of,
    scan,
    stats_of,
    sums_of,
    write_answer,
)
from waybill.exporter.rebuilding import RebuildReport, rebuild_remote
from waybill.exporter.retention import AgedOff
from waybill.exporter.verification import CheckedFile, Explanation, Finding, RowSeen, StepSeen
from waybill.facets import (
    DATA_SINK,
    DELTA_FILE_FACET,
    EVIDENCE,
    EVIDENCE_FACET,
    FINAL_STATES,
    FINGERPRINT_FACET,
    INFERRED_FACET,
    PRESENTED_FACET,
    PRODUCER,
    SEVERITY,
    SUMMARY_FACET,
    UNREADABLE,
    AnnotationRule,
    Attempts,
    DatasetEvent,
    Event,
    EventType,
    FinalState,
    InputFingerprint,
    JobEvent,
    ProvenanceRecord,
    RunEvent,
    RunState,
    WaybillDeltaFileRunFacet,
    WaybillEvidenceRunFacet,
    WaybillFingerprintInputDatasetFacet,
    WaybillInferredJobFacet,
    WaybillInferredRunFacet,
    WaybillSummaryRunFacet,
    canonical_did,
    canonical_dids,
    decode_event,
    decode_records,
    facet_records,
    fingerprints_of,
    fold,
    has_record,
    inferred_reason,
    is_collision,
    keep_annotations,
    merge_all,
    merge_records,
    merge_states,
    observe,
    observe_times,
    parents_of,
    parse_instant_us,
    record_key,
    record_so_far,
    records_of,
    spelled_alike,
)
from waybill.lineage import (
    AnalyzerList,
    AnalyzerProblem,
    AnalyzerUse,
    CollectorReadError,
    Dependencies,
    Duplicate,
    FoundNode,
    Impact,
    ImpactedNode,
    Index,
    IndexReader,
    JobText,
    Journey,
    JourneyFile,
    Kin,
    LastRun,
    Lineage,
    ListedDataset,
    MissingPackageError,
    Node,
    Onward,
    OpenFile,
    Origins,
    OriginStep,
    Producer,
    Reach,
    ReachedNode,
    RecentRun,
    Records,
    RunDiff,
    RunDifference,
    SchemaChange,
    SearchResult,
    ToldFile,
    ToldJourney,
    find,
    open_index,
    trace,
    trace_as_of,
)
from waybill.lineage.analyzers import Analyzer, Catalog, Found, analyze_event, inferred, load_analyzers
from waybill.lineage.answers import ReceiptStatus
from waybill.lineage.drawing import boxes_of_journey, graphml_of_journey, write_dot, write_mermaid, write_svg
from waybill.lineage.levels import Breach, Level, Levels, MaintenanceWindow, Sli, read_latest, read_plan
from waybill.marquez import (
    Backend,
    Counters,
    DeadLetter,
    Delivery,
    EventReader,
    MarquezReadError,
    MissingEvent,
    MissingJob,
    ProbeResult,
    Reconciliation,
    counters_of,
    dead_letter_body,
    dead_letters,
    drop_dead_letters,
    open_deliveries,
    open_reader,
    probe,
    reconcile,
    reconcile_new,
    repair,
    retry_dead_letters,
)
from waybill.pipelines import (
    HEARTBEAT_S,
    MANIFEST_NAMES,
    BrokenUse,
    Manifest,
    Package,
    PackageFinding,
    RunOutcome,
    RunReport,
    YamlFileError,
    check_packages,
    find_manifest,
    first_line,
    list_broken_uses,
    list_packages,
    manifest_schema,
    read_package,
    run_package,
    sample_manifest,
)
from waybill.spark import (
    LISTENER_VERSION,
    Java,
    SparkRows,
    SparkSetupError,
    SparkTaskError,
    compact_on_spark,
    configure,
    fetch_listener,
    find_java,
    formats_not_followed,
    listener_path,
    plain_session,
    rebuild_on_spark,
    scala_version,
    session,
    spark_defaults,
    spark_home,
)
from waybill.transport import (
    AdmissionError,
    AsyncTrackedFile,
    AsyncTracker,
    BackendSetting,
    DuplicateFileError,
    Entry,
    FileContent,
    Fingerprint,
    FingerprintError,
    FlushReport,
    Journal,
    JournalError,
    JournalFullError,
    JournalVersionError,
    Kind,
    MissingExtraError,
    NotFoundError,
    Projection,
    Receiver,
    Reject,
    Rejects,
    RootError,
    Settings,
    SettingsConflictError,
    SettingsError,
    Step,
    TrackedFile,
    Tracker,
    TrackerStateError,
    WaybillConfig,
    WaybillError,
    WaybillTransport,
    admit_event,
    check_records,
    fingerprint_of,
    fingerprint_of_stream,
    flush,
)


def records_are_plain_values(body: bytes) -> None:
    record = ProvenanceRecord(
        did="0193",
        system_name="edge",
        data_source="sftp-in",
        filename="orders.csv",
        transforms=("decompress",),
        final_state=FinalState.COMPLETE,
        created=1,
        completed=2,
    )
    assert_type(record.parent_did, str | None)
    assert_type(record.data_sink, str | None)
    assert_type(record.annotations, dict[str, str] | None)
    assert_type(record_key(record), tuple[str, str, str | None, tuple[str, ...], FinalState, int])
    assert_type(merge_records(record, record), ProvenanceRecord)
    assert_type(merge_all(iter([record])), list[ProvenanceRecord])
    assert_type(is_collision(record, record), bool)
    assert_type(keep_annotations(record, AnnotationRule(frozenset({"key"}))), ProvenanceRecord)
    try:
        assert_type(decode_records(body, system_name="edge"), list[ProvenanceRecord])
    except UNREADABLE as error:
        assert_type(error, ValueError | MsgspecError | RecursionError)


def the_facet_goes_on_a_run() -> dict[str, RunFacet]:
    facet = WaybillDeltaFileRunFacet(did="0193", filename="orders.csv", finalState=FinalState.COMPLETE)
    assert_type(facet.parentDid, str | None)
    producer: str = PRODUCER
    assert producer
    return {DELTA_FILE_FACET: facet}


def a_sink_is_another_name_of_its_dataset() -> dict[str, str]:
    return {"namespace": "shop", "name": "warehouse", "type": DATA_SINK}


def what_an_end_rests_on_goes_on_a_run(record: ProvenanceRecord) -> dict[str, RunFacet]:
    assert_type((record.annotations or {}).get(EVIDENCE), str | None)
    return {
        INFERRED_FACET: WaybillInferredRunFacet(reason="the program that ran it is gone"),
        EVIDENCE_FACET: WaybillEvidenceRunFacet(source="session"),
    }


class Dashboards:
    """An analyzer of a user's own."""

    name = "dashboards"
    covers = "the dashboards that no event tells of"
    confidence = 0.8

    def analyze(self, event: Found, catalog: Catalog) -> Found | None:
        assert WaybillInferredJobFacet(reason="a list", confidence=0.8).reason
        assert event["job"], catalog
        return {
            "outputs": [{"namespace": "dashboard", "name": "week"}],
            "job": {"facets": inferred("a list")},
        }


def what_an_analyzer_finds_is_an_event(event: Found) -> None:
    added: Analyzer = Dashboards()
    analyzers, problems = load_analyzers()
    assert_type(problems, dict[str, str])
    for finding in analyze_event(event, {("s3://lake", "orders"): {"id": "int"}}, [*analyzers, added]):
        assert_type(finding.event, bytes)
        assert_type(finding.problem, str | None)


def files_of_a_minute_are_counted_on_one_run(facets: dict[str, RunFacet]) -> None:
    facets.pop(PRESENTED_FACET, None)
    summary = facets["waybill_summary"]
    if isinstance(summary, WaybillSummaryRunFacet):
        assert_type(summary.dataSource, str)


def events_fold_to_records(body: bytes) -> None:
    event: Event = decode_event(body)
    match event:
        case RunEvent():
            assert_type(event.eventType, EventType)
            assert_type(SEVERITY.get(event.eventType), int | None)
            assert_type({SUMMARY_FACET: event}.get(PRODUCER), RunEvent | None)
            assert_type(parents_of(event), tuple[str, ...])
            state = observe(event, system_name="edge")
            assert_type(state, RunState)
            assert_type(merge_states(state, state), RunState)
            assert_type(observe_times(event, 1), RunState)
            assert_type(FINAL_STATES[0], FinalState)
            assert_type(state.run_id, str)
            assert_type(state.parent_run_id, str | None)
            assert_type(state.ended, bool)
            assert_type(state.faceted, bool)
            assert_type(records_of(state), tuple[ProvenanceRecord, ...])
            assert_type(record_so_far(state, "job"), ProvenanceRecord)
            assert_type(Attempts().has_ended, bool)
            assert_type(fold([event], system_name="edge"), list[ProvenanceRecord])
            assert_type(has_record(event), bool)
            assert_type(inferred_reason(event), str)
            assert_type(facet_records(event, system_name="edge"), tuple[ProvenanceRecord, ...])
        case JobEvent():
            assert_type(event.job.name, str)
        case DatasetEvent():
            assert_type(event.dataset.name, str)
    assert_type(parse_instant_us(event.eventTime), int)


def settings_come_from_anywhere(home: Path) -> None:
    settings = Settings.load({"home": home, "provenance_enabled": True}, origin="here", env={}, cwd=home)
    assert_type(settings.root, Path)
    assert_type(settings.marquez_url, str | None)
    assert_type(settings.provenance_annotations_allowed, frozenset[str])
    assert_type(settings.origins, Mapping[str, str])


def the_journal_keeps_entries(settings: Settings) -> None:
    journal = Journal(settings.home, max_bytes=2**30)
    assert_type(journal.append(Kind.OPENLINEAGE, b"{}", "edge"), int)
    assert_type(journal.append_many([(Kind.PROVENANCE, b"[]", "edge")]), list[int])
    assert_type(journal.mark(b"flush"), int)
    outcomes: list[list[int] | Exception] = []
    journal.submit([(Kind.PROVENANCE, b"[]", "edge")], outcomes.append)
    assert_type(journal.committing_s, float)
    entries = journal.read(0, limit=10)
    assert_type(entries, list[Entry])
    assert_type(entries[0].kind, Kind)
    assert_type(entries[0].body, bytes)
    assert_type(journal.cursor("layout"), int)
    assert_type(journal.state("layout", "run:"), dict[str, bytes])
    assert_type(journal.state_get("layout", "run:1"), bytes | None)
    journal.commit("layout", cursor=1, put={"run:1": b""}, delete=["run:2"])
    journal.close()


def an_endpoint_takes_events(journal: Journal) -> str:
    receiver = Receiver(lambda body: journal.append(Kind.OPENLINEAGE, body, "edge"), on_event=None)
    receiver.start()
    receiver.close()
    return receiver.url


def what_comes_in_is_checked(body: bytes) -> None:
    assert_type(admit_event(body), RunEvent | JobEvent | DatasetEvent)
    assert_type(check_records(body), tuple[bytes, int])


def the_client_takes_the_transport(home: Path) -> OpenLineageClient:
    config = WaybillConfig.from_dict({"home": str(home), "runner": "none"})
    assert_type(config, WaybillConfig)
    transport = WaybillTransport(config)
    assert_type(transport.close(1.5), bool)
    return OpenLineageClient(transport=transport)


def a_program_tracks_its_files(settings: Settings, client: OpenLineageClient) -> None:
    assert_type(Tracker(client, system_name="edge"), Tracker)
    with (
        Tracker(settings=settings) as tracker,
        tracker.file("a", data_source="in", data_sinks={"b": "/data/b"}) as file,
    ):
        assert_type(file, TrackedFile)
        assert_type(file.did, str)
        assert_type(file.parent_did, str | None)
        file.annotate({"rows": 3}, kind="orders")
        with file.transform("decompress"):
            pass
        assert_type(file.branch(), TrackedFile)
        for child in file.split(["a-1.csv", "a-2.csv"], data_sinks={"archive": "/data/archive"}):
            assert_type(child, TrackedFile)
            child.egress("archive", size_bytes=3)
            child.egress("archive", dataset="s3://bucket/archive", schema={"a": "INT"})
            child.egress("archive", dataset=("bigquery", "a.b.c"), schema=StructType([]))
        tracker.file("b", data_source="in", data_sinks={"lake": Path("lake")})
        joined = tracker.join([file], "b.csv", data_source="daily", data_sinks={"archive": "/data/archive"})
        assert_type(joined, TrackedFile)
        assert_type(joined.parent_dids, tuple[str, ...])
        assert_type(tracker.adopt(file.did, parents=[joined, "0193"], transforms=["a"]), TrackedFile)
        file.filter("empty")
        file.error(ValueError("damaged"))
        file.cancel()
        assert_type(tracker.close(), bool)


def a_collector_serves(settings: Settings) -> None:
    def listening(url: str) -> None:
        assert_type(url, str)

    serve(settings, on_listening=listening, drain_timeout_s=1.5, without_keys=True)


def keys_open_doors(journal: Journal) -> str:
    keys = Keys(journal)
    assert_type(keys.all(), tuple[ApiKey, ...])
    assert_type(keys.all()[0].may(Role.READ), bool)
    assert_type(keys.revoke("spark"), bool)
    return keys.add("spark", [Role.EMIT])


def what_was_refused_can_be_mended(journal: Journal) -> None:
    rejects = Rejects(journal)
    rejects.add(Kind.PROVENANCE, [(b"[{}]", "the reason")])
    for reject in rejects.all():
        assert_type(reject, Reject)
        assert_type(rejects.body(reject.id), bytes | None)
        assert_type(rejects.retry(reject.id, b"[]", "edge"), int)
    rejects.drop(["id"])


def a_flush_reports(settings: Settings) -> None:
    def show(done: int, of: int, behind: Sequence[str]) -> None:
        assert_type(done / of, float)
        assert_type(behind[0], str)

    report = flush(settings, timeout_s=1.5, on_progress=show)
    assert_type(report, FlushReport)
    assert_type(report.files, tuple[str, ...])
    assert_type(report.left, dict[str, int])
    assert_type(report.problems, dict[str, str])


async def a_file_is_tracked_in_an_event_loop(settings: Settings) -> None:
    async with AsyncTracker(settings=settings) as tracker, await tracker.file("a", data_source="in") as file:
        assert_type(file, AsyncTrackedFile)
        with file.transform("enrich"):
            file.annotate({"a": 1})
        assert_type(await file.split(["b"]), list[AsyncTrackedFile])
        await file.branch().egress("out", dataset="/data/out", schema={"a": "INT"}, size_bytes=1)
        assert_type(await tracker.join([file, "0193"], "c", data_source="daily"), AsyncTrackedFile)
        assert_type(await tracker.adopt(file.did), AsyncTrackedFile)


class Mine:
    """A projection of somebody's own."""

    def __init__(self) -> None:
        self.name = "mine"
        self.stores = False

    def step(self) -> Step:
        return Step(applied=1, retry_s=0.5, problem="the disk is full; free space there")

    def pending(self) -> int:
        return 0

    def finish(self) -> None: ...

    def close(self) -> None: ...


def anybody_can_write_a_projection() -> Projection:
    return Mine()


def errors_tell_their_parts(error: WaybillError) -> None:
    match error:
        case SettingsConflictError() | SettingsError():
            assert_type(error.name, str)
            assert_type(error.value, object)
            assert_type(error.origin, str)
        case AdmissionError():
            assert_type(error.where, str)
            assert_type(error.way_out, str)
        case MissingExtraError():
            assert_type(error.extra, str)
        case JournalFullError() | JournalVersionError() | NotFoundError() | RootError():
            assert_type(str(error), str)
        case JournalError():
            assert_type(str(error), str)
        case TrackerStateError():
            assert_type(error.file, str)
            assert_type(error.call, str)
        case _:
            raise error


def the_backend_is_asked_and_told(journal: Journal, settings: Settings) -> Projection:
    assert_type(dead_letters(journal), list[DeadLetter])
    assert_type(dead_letter_body(journal, 7), bytes | None)
    retry_dead_letters(journal, [7])
    reader: EventReader = open_reader(settings, "marquez")
    found: Reconciliation = reconcile(journal, reader, since_ms=0, backend="marquez")
    assert_type(found.missing, tuple[MissingEvent, ...])
    assert_type(found.missing_jobs, tuple[MissingJob, ...])
    assert_type([one.compared for one in reconcile_new(journal, reader, since_ms=0)], list[int])
    repair(journal, [*found.missing, *found.missing_jobs])
    drop_dead_letters(journal, {8, 9}, backend="marquez")
    answered = probe("http://localhost:5000", api_key="key", timeout_s=0.5)
    assert_type(answered, ProbeResult)
    assert_type(answered.problem, str | None)
    figures: Counters = counters_of(journal, "marquez") or Counters()
    assert_type((figures.delivered, figures.coalesced), tuple[int, int])
    deliveries = open_deliveries(journal, settings)
    assert_type(deliveries, list[Delivery])
    assert_type(settings.backends, tuple[BackendSetting, ...])
    return deliveries[0]


def the_backend_takes_an_event(body: bytes) -> None:
    backend = Backend("http://localhost:5000", api_key=None, connect_timeout_s=0.5, answer_timeout_s=2.0)
    assert_type(backend.shown_url, str)
    assert_type(backend.deliver(body).status, int | None)


def records_become_files(root: Path, record: ProvenanceRecord) -> None:
    raw = RawName("0a1b", 1, 20)
    assert_type(RawName.parse(str(raw)), RawName | None)
    assert_type(RawWriter(root).write(raw, [record]), list[Hour])
    assert_type(hour_of(record.completed), Hour)
    assert_type(hour_of(record.completed).start_ms, int)
    assert_type(safe_name("../edge"), str)
    retraction = Retraction(raw, frozenset({record_key(record)}))
    report = Compactor(root).compact([hour_of(record.completed)], retraction=retraction)
    assert_type(report, CompactionReport)
    assert_type(report.published, tuple[str, ...])
    assert_type(report.failed, Mapping[Hour, str])
    assert_type(report.aside, tuple[Quarantined, ...])
    assert_type([one.sentence for one in list_quarantined(root)], list[str])
    assert_type(compact_remote("s3://bucket/lineage"), CompactionReport)


def a_rebuild_reads_a_source(settings: Settings, root: Path) -> RebuildReport:
    wanted = Wanted(system_name="edge", rule=AnnotationRule(frozenset({"customer"})), since_ms=1, until_ms=2)
    try:
        source: Source = open_source("jsonl", ["events.jsonl"], settings)
        for part in source.parts():
            for batch in source.read(part):
                for stored in batch:
                    assert_type(stored, Stored)
                    assert_type(source.place(part, stored.at), str)
        report = rebuild(source, root, wanted, workers=2, on_progress=print)
    except SourceUnreachableError:
        raise
    except (RebuildError, SourceError) as error:
        raise SystemExit(str(error)) from None
    assert_type(report.files, tuple[str, ...])
    assert_type(report.aside, tuple[Quarantined, ...])
    assert_type(report.is_whole, bool)
    return report


def a_rebuild_goes_to_an_object_store(source: Source, wanted: Wanted) -> RebuildReport:
    there = open_destination("s3://bucket/lineage")
    return rebuild_remote(source, there, Path("staging"), wanted, workers=2, on_progress=print)


def spark_rebuilds_too(source: Source, root: Path) -> RebuildReport:
    spark = plain_session("local[2]")
    assert_type(spark, SparkSession)
    try:
        assert_type(compact_on_spark(spark, root), CompactionReport)
        assert_type(compact_on_spark(spark, "s3://bucket/lineage"), CompactionReport)
    except SparkTaskError as error:
        raise SystemExit(str(error)) from None
    assert_type(
        rebuild_on_spark(spark, source, "s3://bucket/lineage", Wanted(system_name="edge")), RebuildReport
    )
    return rebuild_on_spark(spark, source, root, Wanted(system_name="edge"))


def a_dataset_is_asked(place: str) -> LastRun | None:
    lineage = Lineage.open(place)
    found = lineage.dependencies("lake/orders", up=None, down=2, columns=True)
    assert_type(found, Dependencies)
    assert_type(found.upstream, Reach)
    assert_type(found.upstream.nodes, tuple[ReachedNode, ...])
    assert_type(found.node, Node)
    assert_type(lineage.graph("lake/orders", down=2), Any)
    assert_type(lineage.graph(), Any)
    assert_type(lineage.upstream("lake/orders"), tuple[ReachedNode, ...])
    assert_type(lineage.downstream("lake/orders", 3), tuple[ReachedNode, ...])
    impact = lineage.impact("lake/orders.total")
    assert_type(impact, Impact)
    assert_type(impact.nodes, tuple[ImpactedNode, ...])
    origins = lineage.origins("lake/orders.total")
    assert_type(origins, Origins)
    assert_type(origins.steps, tuple[OriginStep, ...])
    assert_type(origins.texts, tuple[JobText, ...])
    assert_type(lineage.unused_datasets(written=True), tuple[ListedDataset, ...])
    assert_type(lineage.stale_datasets(1), tuple[ListedDataset, ...])
    assert_type(lineage.recent_runs(1, "ERROR", 3), tuple[RecentRun, ...])
    assert_type(lineage.schema_changes(1), tuple[SchemaChange, ...])
    doubled = lineage.duplicate_producers()
    assert_type(doubled, tuple[Duplicate, ...])
    assert_type(doubled[0].producers, tuple[Producer, ...])
    assert_type(lineage.names("orders"), tuple[Node, ...])
    differing = lineage.diff("first", "second")
    assert_type(differing, RunDiff)
    assert_type(differing.differences, tuple[RunDifference, ...])
    assert_type(lineage.analyzers(), AnalyzerList)
    assert_type(lineage.analyzers().problems, tuple[AnalyzerProblem, ...])
    assert_type(lineage.analyzers().analyzers[0], AnalyzerUse)
    assert_type(lineage.trace("did").onward, Onward)
    words = lineage.search("daily orders", 3)
    assert_type(words, SearchResult)
    assert_type(words.nodes, tuple[FoundNode, ...])
    return found.last_run


def a_file_is_explained(source: Source, root: Path) -> Explanation:
    found = explain("did", [source], root, Wanted(system_name="edge"))
    assert_type(found.steps, tuple[StepSeen, ...])
    assert_type(found.rows, tuple[RowSeen, ...])
    assert_type(found.is_proven, bool)
    return found


def run_events_are_read_back(url: str) -> int:
    reader = EventReader(url, "key")
    try:
        assert_type(reader.extent_us(), tuple[int, int, int] | None)
        for batch in reader.read(0, 1_000_000, print):
            assert_type(batch, list[bytes])
    except MarquezReadError:
        return 1
    finally:
        reader.close()
    return 0


def the_archive_is_a_projection(journal: Journal, settings: Settings) -> Projection | None:
    archive = open_archive(journal, settings)
    assert_type(archive, Archive | None)
    return archive


def the_layout_is_a_projection(journal: Journal, settings: Settings) -> Projection | None:
    layout = open_layout(journal, settings)
    assert_type(layout, Layout | None)
    return layout


def records_are_found_again(root: Path, journal: Journal, settings: Settings) -> None:
    query = Query(
        did="0193", final_state=FinalState.ERROR, annotations={"kind": "orders"}, since_ms=1, limit=5
    )
    Query(
        final_state=(FinalState.ERROR, FinalState.CANCELLED),
        not_final_states=[FinalState.SPLIT],
        has_data_sink=False,
        not_data_sinks=["lake"],
        created_since_ms=1,
        created_until_ms=2,
    )
    try:
        found = find(root, query)
        assert_type(found, Records)
        Query(oldest_first=True, after=cursor_of(found[-1]))
    except IncompleteError as error:
        assert_type(error.unread, tuple[str, ...])
    except CursorError:
        return
    try:
        assert_type(stats_of(scan(root, query, summed_by=STATS_BY)), Stats)
    except TooManyError:
        return
    sums = sums_of(scan(root, query, summed_by=list(Dimension)), [Dimension.STATE, Dimension.HOUR])
    assert_type(sums, dict[tuple[str | int | None, ...], int])
    assert_type(write_answer(scan(root, query), root / "found.parquet", replace=True), int)
    try:
        waiting = TailReader(journal).read(settings)
    except BacklogError:
        return
    assert_type(waiting, Tail)
    assert_type(poison_note(journal), str | None)
    tables = sum(1 for _ in scan(root, query, tail=waiting))
    try:
        rule = settings.annotation_rule
        known = read_as_of(settings.root, journal, [], 1, system_name="edge", rule=rule, on_batch=print)
        assert_type(known, list[waybill.ProvenanceRecord])
    except EntriesGoneError as error:
        assert_type(str(error), str)
    assert_type(tables, int)


def a_home_is_well(journal: Journal, settings: Settings) -> None:
    """What is wrong, and what to do about it."""
    for problem in problems_of(journal, settings):
        assert_type(problem, Problem)
        assert_type(problem.kind, ProblemKind)
        assert_type(problem.sentence, str)


def a_root_is_proved(root: Path, other: Path) -> None:
    """What is wrong with each file, and which records differ."""
    for checked in check(root):
        assert_type(checked, CheckedFile)
        assert_type(checked.findings, tuple[Finding, ...])
    assert_type(read_ledger(root), LedgerState | None)
    for difference in compare(root, other):
        assert_type(difference, Difference)
        assert_type(difference.ours, ProvenanceRecord | None)


def a_root_is_exported(root: Path) -> None:
    """Anywhere, as often as one likes."""
    try:
        destination = open_destination("s3://bucket/lineage", timeout_s=60.0)
        assert_type(destination, Destination)
        exported = export(root, destination, delete_after=True, dry_run=False, on_progress=print)
    except DestinationError:
        return
    assert_type(exported, Exported)
    assert_type(age_off_archive(root, days=400.0, filed={"0a1b": 9}), AgedOff)
    aged = age_off(root, days=3.0, days_by_system={"edge": 30.0}, only_exported=True)
    assert_type(aged, AgedOff)
    assert_type(exported.failed, Mapping[str, str])


def one_line_tracks_a_pipeline() -> None:
    with session("orders", master="local[2]", conf={"a": "b"}, tags={"team": "x"}, home="/data") as spark:
        assert_type(spark, SparkSession)
    assert_type(session("orders", remote="sc://localhost", tags={"team": "x"}), SparkSession)
    builder = configure(SparkSession.Builder().appName("orders"), endpoint="http://localhost:8090")
    assert_type(builder, SparkSession.Builder)
    assert_type(builder.getOrCreate(), SparkSession)


def what_spark_needs_is_found_or_fetched(cache: Path) -> None:
    assert_type(spark_home(), Path)
    scala = scala_version(spark_home())
    assert_type(formats_not_followed(spark_defaults(spark_home())), str)
    assert_type(listener_path(scala, cache=cache), Path)
    assert_type(str(LISTENER_VERSION), str)
    try:
        java = find_java(env={}, cache=cache)
        assert_type(java, Java)
        assert_type(fetch_listener(java, cache=cache), Path)
    except SparkSetupError as error:
        assert_type(str(error), str)


def the_journey_of_a_file() -> None:
    lineage = Lineage.open("home")
    journey = lineage.trace("0193", up=True, down=False, depth=3)
    assert_type(journey, Journey)
    assert_type(journey.file, JourneyFile)
    assert_type(journey.edges(), list[tuple[str, str]])
    assert_type([file.filename for file in lineage.ancestors("0193")], list[str | None])
    assert_type([file.did for file in lineage.descendants("0193")], list[str])
    assert_type(trace(lineage.tables, "0193"), Journey)
    try:
        lineage = Lineage.open("http://localhost:8090")
    except CollectorReadError as error:
        assert_type(error.url + error.what, str)
    with IndexReader.open(Path("home"), Journal(Path("home"))) as index:
        known: list[Kin] = [index]
        kin = known[0]
        assert_type(kin.parents_of(["0193"]), Mapping[str, tuple[str, ...]])
        assert_type(trace(lineage.tables, "0193", kin=kin), Journey)
    assert_type(lineage.trace("0193", as_of_ms=1), Journey)
    assert_type(lineage.explain("0193"), Explanation)
    assert_type(lineage.locate("5f0c6a1b2d3e-1"), ReceiptStatus | None)
    assert_type(trace_as_of(journey, 1, Path("root"), None, Settings.load({}, origin="here")), Journey)
    assert_type(lineage.sums(["state", Dimension.HOUR]), dict[tuple[str | int | None, ...], int])
    assert_type(list(lineage.open_files()), list[OpenFile])
    assert_type(journey.file.open, OpenFile | None)
    assert_type(list(lineage.tables(Query(did="0193"), ["did"])), list[Any])
    found = lineage.find(Query(did="0193"))
    assert_type(found, Records)
    assert_type(found[0], waybill.ProvenanceRecord)
    try:
        assert found.to_arrow()
        assert found.to_pandas()
        assert found.to_polars()
    except MissingPackageError as error:
        assert_type(error.package, str)
    assert_type(journey.told(), ToldJourney)
    assert_type(journey.told().files, tuple[ToldFile, ...])
    assert_type(Journey.of(journey.told()), Journey)
    assert_type(index.parents_of(["0193"]), dict[str, tuple[str, ...]])
    assert_type(index.open_files(), list[OpenFile])
    assert callable(open_keys)
    assert callable(open_index)
    assert callable(Index)
    assert_type(spelled_alike(canonical_did("0193")), str)
    assert_type(canonical_dids(["0193"]), frozenset[str])
    for draw in (write_mermaid, write_dot, write_svg):
        assert_type(draw(*boxes_of_journey(journey, folded_from=None)), str)
    assert_type(graphml_of_journey(journey), str)


def a_content_has_a_fingerprint(path: Path) -> None:
    try:
        assert_type(fingerprint_of(path, max_bytes=2**30, on_read=print), Fingerprint)
        with path.open("rb") as stream:
            found = fingerprint_of_stream(stream, "orders.csv")
    except FingerprintError as error:
        assert_type((error.file, error.offset_bytes), tuple[str, int])
    else:
        assert_type((str(found), found.input_bytes, found.compression), tuple[str, int, str | None])


def a_file_may_be_there_already(tracker: Tracker, transport: WaybillTransport) -> None:
    try:
        f = tracker.file(path="a.gz", data_source="in", fingerprint=True, on_duplicate="raise", force=False)
        assert_type((f.fingerprint, f.duplicate_of), tuple[str | None, str | None])
    except DuplicateFileError as error:
        assert_type((error.file, error.fingerprint, error.duplicate_of), tuple[str, str, str])
        assert_type(transport.first_with(error.fingerprint), FileContent | None)


def a_content_goes_on_an_input() -> InputDataset:
    facet = WaybillFingerprintInputDatasetFacet(
        fingerprint="xxh3-128:99aa06d3014798d86001c324468d497f",
        algorithm="xxh3-128",
        inputBytes=20,
        contentBytes=0,
    )
    return InputDataset("edge", "in", inputFacets={FINGERPRINT_FACET: facet})


def an_event_tells_the_contents_of_its_inputs(event: RunEvent) -> None:
    assert_type(fingerprints_of(event), tuple[InputFingerprint, ...])


async def what_users_type_most_is_in_the_package_itself() -> None:
    assert_type(waybill.__version__, str)
    settings: Settings = waybill.Settings.load()
    tracker: Tracker = waybill.Tracker(home="/data", provenance_enabled=True)
    with tracker.file(Path("orders.csv"), data_source="sftp-in") as file:
        tracked: waybill.TrackedFile = file
        assert_type(tracked.did, str)
    async with waybill.AsyncTracker() as waiting:
        other: waybill.AsyncTrackedFile = await waiting.file("orders.csv", data_source="sftp-in")
        assert_type(other.did, str)
    try:
        assert_type(waybill.flush(settings), FlushReport)
        found: list[waybill.ProvenanceRecord] = waybill.find("root", waybill.Query(did="0193"))
        assert_type(waybill.Lineage.open().trace("0193"), waybill.Journey)
        assert_type([record.final_state is waybill.FinalState.ERROR for record in found], list[bool])
    except waybill.WaybillError as error:
        assert_type(str(error), str)


def a_package_is_checked_and_run(spark: SparkSession, tracker: Tracker) -> None:
    packages, unread = list_packages(Path("packages"))
    assert_type((packages, unread), tuple[list[Package], list[PackageFinding]])
    assert_type([one.what for one in check_packages(packages)], list[str])
    assert_type(list_broken_uses(packages, packages), list[BrokenUse])
    try:
        package = read_package(find_manifest(Path("packages") / MANIFEST_NAMES[0]))
    except YamlFileError as error:
        assert_type((error.path, error.line, error.field, error.what), tuple[str, int, str, str])
        return
    assert_type(package.manifest, Manifest)
    assert_type((manifest_schema(), sample_manifest("daily")), tuple[dict[str, Any], str])
    report = RunReport(package, ["--fast"], environment={}, fingerprint_max_bytes=1)
    outcome = run_package(report, print, {}, say=print, heartbeat_s=HEARTBEAT_S)
    assert_type((outcome, first_line(outcome.reason)), tuple[RunOutcome, str])
    for row in tracker.rows([{"url": "https://a.example"}], dataset=lambda row: row["url"]):
        assert_type(row, dict[str, str])
    with SparkRows(spark, dataset=lambda row: row["url"], tracker=tracker) as rows:
        spark.range(1).foreachPartition(rows.of_partition(lambda _: None))


def a_home_has_service_levels(journal: Journal, settings: Settings) -> None:
    found = read_latest(journal)
    if found is not None:
        assert_type(found, Levels)
        assert_type(found.missed, tuple[Level, ...])
        assert_type([(one.sli, one.dataset) for one in found.breaches], list[tuple[Sli, str]])
        assert_type(found.maintenance, tuple[MaintenanceWindow, ...])
        assert_type([one.owner for one in map(_same_breach, found.breaches)], list[str])
    assert_type(read_plan(settings).file.active_windows(0), tuple[MaintenanceWindow, ...])


def _same_breach(breach: Breach) -> Breach:
    return breach


@waybill.tracked(inputs=["s3://lake/in"], outputs=["s3://lake/out"])
def a_function_is_tracked(number: int) -> str:
    return str(number)


def a_tracked_function_keeps_its_type() -> None:
    assert_type(a_function_is_tracked(1), str)


def a_name_that_is_not_there_is_told_before_it_is_run() -> None:
    assert waybill.Traker  # type: ignore[attr-defined]
    assert waybill.facets.Traker  # type: ignore[attr-defined]
    assert waybill.transport.Traker  # type: ignore[attr-defined]
    assert waybill.exporter.Traker  # type: ignore[attr-defined]
    assert waybill.lineage.Traker  # type: ignore[attr-defined]
    assert waybill.spark.Traker  # type: ignore[attr-defined]


def the_command_is_a_function() -> None:
    main()
