"""Rebuild and compaction on Spark give the rows of the embedded engine and of the live layout."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from databases import ByNetwork, marquez_database
from events import event
from stores import Store, new_bucket

from waybill.exporter import Compactor, IncompleteError, SourceError, Wanted, check, open_source, rebuild
from waybill.exporter.compaction import CompactionReport, RawWriter
from waybill.exporter.layout import Layout
from waybill.exporter.ledger import read_ledger
from waybill.exporter.names import RawName
from waybill.exporter.sources import JournalSource, LinesSource, MarquezDatabaseSource, Source
from waybill.facets import AnnotationRule, ProvenanceRecord, RunEvent, decode_event, fold, merge_all
from waybill.lineage import find
from waybill.spark import SparkSetupError, SparkTaskError, compact_on_spark, rebuild_on_spark
from waybill.spark.runtime import fetch_driver
from waybill.transport import Journal, Kind, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from waybill.exporter.rebuilding import RebuildReport

pytestmark = pytest.mark.spark_truth

REAL = Path(__file__).parent.parent / "facets/expected"
START_MS = 1_767_225_600_000
WANTED = Wanted(system_name="host", rule=AnnotationRule(frozenset({"errorCause", "customer"})))


@pytest.fixture(scope="module")
def bucket(s3_address: str) -> Iterator[Store]:
    """An empty bucket."""
    with pytest.MonkeyPatch.context() as patch:
        yield new_bucket(s3_address, patch)


@pytest.fixture(scope="module")
def spark(plain_spark: SparkSession) -> Iterator[SparkSession]:
    """A session far from UTC."""
    session = plain_spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "3")
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        yield session


def generated(count: int, seed: int = 5, *, hours: int = 24) -> list[bytes]:
    """Events of runs with the facet and without, shuffled, over some hours and three systems."""
    chance = random.Random(seed)  # noqa: S311 - the same each time
    kinds = ["START", "RUNNING", "COMPLETE", "FAIL", "ABORT"]
    bodies = []
    for _ in range(count):
        number = chance.randrange(count // 2)
        moment_ms = START_MS + chance.randrange(hours * 3_600_000)
        facets: dict[str, object] = {}
        if number % 3 == 0:
            annotations = {"customer": chance.choice("ab"), "secret": "x"} if number % 2 else None
            facet = {"did": f"d{number}", "systemName": f"s{number % 2}", "annotations": annotations}
            facets["waybill_deltaFile"] = {"_producer": "p", "_schemaURL": "s", **facet}
        at = datetime.fromtimestamp(moment_ms / 1_000, UTC).isoformat()
        outputs = [f"file/o{at}" for at in range(number % 3)]
        bodies.append(
            event(f"r{number}", chance.choice(kinds), at, job="edge/job", facets=facets, outputs=outputs)
        )
    return bodies


def recorded(count: int, *, hours: int) -> list[ProvenanceRecord]:
    """The records of such events."""
    events = [decode_event(body) for body in generated(count, hours=hours)]
    return fold([event for event in events if isinstance(event, RunEvent)], system_name="host")


def rows(root: Path) -> list[ProvenanceRecord]:
    assert [one.findings for one in check(root) if one.findings] == []
    assert not list(root.glob("provenance/raw/*/*/*.parquet"))
    return merge_all(find(root))


def both(spark: SparkSession, source: Source, folder: Path) -> tuple[RebuildReport, RebuildReport]:
    embedded = rebuild(source, folder / "embedded", WANTED)
    on_spark = rebuild_on_spark(spark, source, folder / "spark", WANTED)
    assert not (folder / "spark/.rebuild").exists()
    assert rows(folder / "spark") == rows(folder / "embedded") != []
    assert on_spark.files == embedded.files
    ledger = read_ledger(folder / "spark")
    assert ledger is not None
    assert ledger.changing == frozenset()
    assert {path for path, _ in ledger.seals.items()} == set(on_spark.files)
    assert (on_spark.entries, on_spark.unreadable, on_spark.parts, on_spark.source) == (
        embedded.entries,
        embedded.unreadable,
        embedded.parts,
        embedded.source,
    )
    return on_spark, embedded


def live(journal: Journal, root: Path) -> Path:
    """A root that the projection wrote from a journal, flushed."""
    given = {"home": root, "root": root, "system_name": "host", "provenance_enabled": True}
    allowed = {"provenance_annotations_allowed": ",".join(WANTED.rule.allowed)}
    layout = Layout(journal, Settings.load({**given, **allowed}, origin="tests", env={}, cwd=root.parent))
    mark = journal.mark(b"flush")
    while journal.cursor("layout") < mark:
        assert layout.step().problem is None
    return root


def test_generated_events_in_many_parts_give_the_same_rows_in_the_same_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "log").write_bytes(b"\n".join([*generated(300, hours=6), b"nonsense"]))
    on_spark, _ = both(spark, LinesSource((tmp_path / "log",), 30_000), tmp_path)
    assert on_spark.parts > 1
    assert on_spark.unreadable == 1


def test_events_and_stamped_records_of_a_journal_give_the_rows_of_the_live_layout_on_both_engines(
    spark: SparkSession, tmp_path: Path
) -> None:
    journal = Journal(tmp_path / "home")
    bodies = generated(150, 1, hours=3)
    for path in sorted(REAL.glob("*.jsonl")):
        bodies += path.read_bytes().splitlines()
    half = len(bodies) // 2
    for part in (bodies[:half], bodies[half:]):
        journal.append_many((Kind.OPENLINEAGE, body, "") for body in part)
        live(journal, tmp_path / "live")
    record = {"did": "d", "finalState": "COMPLETE", "created": START_MS, "completed": START_MS + 5}
    journal.append(Kind.PROVENANCE, json.dumps([record, {**record, "systemName": "own"}]).encode(), "stamped")
    live(journal, tmp_path / "live")
    journal.close()
    both(spark, JournalSource(tmp_path / "home"), tmp_path)
    assert rows(tmp_path / "spark") == rows(tmp_path / "live")
    assert {"stamped", "own"} <= {row.system_name for row in rows(tmp_path / "spark")}


def test_each_window_of_marquez_s_database_is_a_partition_of_spark_s_own_reading_and_is_read_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    given = [json.loads(body) for body in generated(120, hours=3)]
    with marquez_database(given) as url, ByNetwork(url) as network:
        _driver_or_skip()
        with pytest.raises(SourceError, match="give its host and port"):  # of a socket
            rebuild_on_spark(spark, MarquezDatabaseSource(url), tmp_path / "root", WANTED)
        source, root = MarquezDatabaseSource(network.url, 20), tmp_path / "spark"
        expected = rebuild(source, tmp_path / "embedded", WANTED)
        blocked = root / "provenance/raw/20260101"
        blocked.mkdir(parents=True)
        (blocked / "01").write_bytes(b"in the way")
        network.greetings.clear()
        with pytest.raises(SparkTaskError, match=r"20260101/01.*it continues where it stopped"):
            rebuild_on_spark(spark, source, root, WANTED)
        assert len([one for one in network.greetings if b"PostgreSQL JDBC Driver" in one]) >= 6
        (blocked / "01").unlink()
        (work,) = (root / ".rebuild").iterdir()
        (work / "part-0000002.arrow").unlink()
        report = rebuild_on_spark(spark, source, root, WANTED)
    assert (report.parts, report.resumed) == (6, 5)
    assert (report.entries, report.files) == (120, expected.files)
    assert rows(root) == rows(tmp_path / "embedded")


def _driver_or_skip() -> None:
    """See that the JDBC driver is on this machine, fetched if need be."""
    try:
        fetch_driver()
    except SparkSetupError as error:
        if "SHA-256" in str(error):  # it was reached
            raise
        pytest.skip(f"Maven Central cannot be reached from here: {error}")


def test_compacted_on_spark_a_root_has_the_files_that_it_has_compacted_otherwise(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Also beside a damaged raw file, which is set aside."""
    records = recorded(200, hours=8)
    for root in (tmp_path / "embedded", tmp_path / "spark"):
        writer = RawWriter(root)
        for at in range(5):
            writer.write(RawName("aa", at + 1, at + 1), records[at::5])
            writer.write(RawName("bb", at + 1, at + 1), records[at : at + 40])
        damaged = min(root.glob("provenance/raw/*/00/aa-*"))
        damaged.write_bytes(b"nonsense")
    expected = Compactor(tmp_path / "embedded").compact()
    report = compact_on_spark(spark, tmp_path / "spark")
    assert msgspec.structs.replace(report, aside=expected.aside) == expected
    (aside,) = report.aside
    assert aside.path == str(damaged.relative_to(tmp_path / "spark"))
    assert (tmp_path / "spark" / aside.kept).read_bytes() == b"nonsense"
    assert len(expected.published) > 8
    for path in expected.published:
        assert (tmp_path / "spark" / path).read_bytes() == (tmp_path / "embedded" / path).read_bytes()
    with pytest.raises(IncompleteError, match="was quarantined"):
        find(tmp_path / "spark")
    assert compact_on_spark(spark, tmp_path / "spark") == CompactionReport()


def test_raw_files_in_a_bucket_are_compacted_there_on_spark(
    spark: SparkSession, bucket: Store, tmp_path: Path
) -> None:
    store = bucket.below("raw files")
    records = recorded(120, hours=4)
    for root in (tmp_path / "there", tmp_path / "here"):
        for at in range(3):
            RawWriter(root).write(RawName(f"a{at}", 1, 1), records[at::2])
    for path in (tmp_path / "there").rglob("*.parquet"):
        store.put(str(path.relative_to(tmp_path / "there")), path.read_bytes())
    expected = Compactor(tmp_path / "here").compact()
    assert compact_on_spark(spark, store.url) == expected
    found = store.files()
    assert {path for path in found if path.endswith(".parquet")} == set(expected.published)
    for published in expected.published:
        there = pq.ParquetFile(pa.BufferReader(found[published])).read()
        assert there.equals(pq.ParquetFile(tmp_path / "here" / published).read())
    assert compact_on_spark(spark, store.url) == CompactionReport()


def test_from_a_bucket_into_a_bucket_a_rebuild_goes_on_where_it_was_cut_short_and_the_next_is_merged(
    spark: SparkSession, bucket: Store, tmp_path: Path
) -> None:
    bodies, store = generated(200, hours=4), bucket.below("whole")
    (tmp_path / "log").write_bytes(b"\n".join(bodies))
    store.put("logs/a.jsonl", b"\n".join(bodies[:100]))
    store.put("logs/b.jsonl", b"\n".join(bodies[100:]))
    given = Settings.load({"home": tmp_path, "root": tmp_path}, origin="tests", env={}, cwd=tmp_path)
    source = open_source("jsonl", [f"{store.url}/logs"], given)
    expected = rebuild(LinesSource((tmp_path / "log",)), tmp_path / "root", WANTED)
    damaged = f"root/{expected.files[0]}"
    store.put(damaged, b"in the way")
    first = rebuild_on_spark(spark, source, f"{store.url}/root", WANTED)
    assert len(first.failed) == 1
    kept = [path for path in store.files() if path.startswith("root/.rebuild/")]
    assert len([path for path in kept if path.endswith(".arrow")]) == first.parts == 2
    assert len([path for path in kept if "/hour-" in path]) == 3
    store.remove(damaged)
    before = parquet_in(store)
    report = rebuild_on_spark(spark, source, f"{store.url}/root", WANTED)
    assert (report.resumed, report.entries, report.records) == (2, 200, expected.records)
    assert (report.files, report.failed, report.damaged) == (expected.files, (), ())
    found = parquet_in(store)
    assert sorted(found) == [f"root/{path}" for path in expected.files]
    assert before.items() < found.items()
    assert [path for path in store.files() if path.startswith("root/.rebuild/")] == []
    assert merge_all(store.rows()) == rows(tmp_path / "root")
    again = rebuild_on_spark(spark, LinesSource((tmp_path / "log",)), f"{store.url}/root", WANTED)
    assert again.files == expected.files
    assert parquet_in(store) == found


def parquet_in(store: Store) -> dict[str, bytes]:
    return {path: data for path, data in store.files().items() if path.endswith(".parquet")}


def test_a_damaged_file_of_the_root_that_is_in_the_way_is_told(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\n".join(generated(60, hours=3)))
    source, root = LinesSource((tmp_path / "log",)), tmp_path / "root"
    first = rebuild(source, root, WANTED)
    (root / first.files[0]).write_bytes(b"nonsense")
    report = rebuild_on_spark(spark, source, root, WANTED)
    assert [one.path for one in report.aside] == [first.files[0]]
    assert not report.is_whole


def test_a_source_without_events_gives_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    Journal(tmp_path / "home").close()
    report = rebuild_on_spark(spark, JournalSource(tmp_path / "home"), tmp_path / "root", WANTED)
    assert (report.parts, report.entries, report.files) == (0, 0, ())
    assert find(tmp_path / "root") == []


def test_only_reports_come_to_the_driver() -> None:
    from waybill.spark import compaction
    from waybill.spark.rebuilding import jdbc, reading, rebuilding

    for module, reports in ((jdbc, 0), (reading, 1), (rebuilding, 1), (compaction, 1)):
        text = Path(str(module.__file__)).read_text(encoding="utf-8")
        assert text.count(".collect()") == reports
        assert "toPandas" not in text
