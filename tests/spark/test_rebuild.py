"""The rebuild on Spark gives the rows of the embedded one, from generated and from real events."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from waybill.exporter import RebuildReport, Wanted, check, find, rebuild
from waybill.exporter.sources import JournalSource, LinesSource, Source
from waybill.facets import ProvenanceRecord, merge_all
from waybill.spark import plain_session, rebuild_on_spark
from waybill.transport import Journal, Kind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REAL = Path(__file__).parent.parent / "facets/expected"
START_MS = 1_767_225_600_000
WANTED = Wanted(system_name="host", annotations_allowed=frozenset({"errorCause", "customer"}))


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A plain session, far from UTC, of two workers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", "")
        patch.setenv("TZ", "America/New_York")
        session = plain_session("local[2]")
        session.conf.set("spark.sql.shuffle.partitions", "3")
        session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        yield session
        session.stop()


def generated(count: int) -> list[bytes]:
    """Events of runs with the facet and without, shuffled, over a day and three systems."""
    chance = random.Random(5)  # noqa: S311 - the same each time
    kinds = ["START", "RUNNING", "COMPLETE", "FAIL", "ABORT"]
    bodies = []
    for _ in range(count):
        number = chance.randrange(count // 2)
        moment_ms = START_MS + chance.randrange(86_400_000)
        facets: dict[str, object] = {}
        if number % 3 == 0:
            annotations = {"customer": chance.choice("ab"), "secret": "x"} if number % 2 else None
            facet = {"did": f"d{number}", "systemName": f"s{number % 2}", "annotations": annotations}
            facets["waybill_deltaFile"] = {"_producer": "p", "_schemaURL": "s", **facet}
        event = {
            "eventTime": datetime.fromtimestamp(moment_ms / 1_000, UTC).isoformat(),
            "eventType": chance.choice(kinds),
            "producer": "https://example.org",
            "run": {"runId": f"r{number}", "facets": facets},
            "job": {"namespace": "edge", "name": "job"},
            "outputs": [{"namespace": "file", "name": f"o{at}"} for at in range(number % 3)],
        }
        bodies.append(json.dumps(event).encode())
    return bodies


def rows(root: Path) -> list[ProvenanceRecord]:
    assert [one.findings for one in check(root) if one.findings] == []
    assert not list(root.glob("provenance/raw/*/*/*.parquet"))
    return merge_all(find(root))


def both(spark: SparkSession, source: Source, folder: Path) -> tuple[RebuildReport, RebuildReport]:
    embedded = rebuild(source, folder / "embedded", WANTED)
    on_spark = rebuild_on_spark(spark, source, folder / "spark", WANTED)
    assert rows(folder / "spark") == rows(folder / "embedded") != []
    assert on_spark.files == embedded.files
    assert (on_spark.entries, on_spark.unreadable, on_spark.parts, on_spark.source) == (
        embedded.entries,
        embedded.unreadable,
        embedded.parts,
        embedded.source,
    )
    return on_spark, embedded


def test_generated_events_in_many_parts_give_the_same_rows_in_the_same_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waybill.exporter.sources.lines._PART_BYTES", 60_000)
    (tmp_path / "log").write_bytes(b"\n".join([*generated(600), b"nonsense"]))
    on_spark, _ = both(spark, LinesSource((tmp_path / "log",)), tmp_path)
    assert on_spark.parts > 1
    assert on_spark.unreadable == 1


def test_real_events_and_stamped_records_of_a_journal_give_the_same_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    journal = Journal(tmp_path / "home")
    for path in sorted(REAL.glob("*.jsonl")):
        journal.append_many((Kind.OPENLINEAGE, body, "") for body in path.read_bytes().splitlines())
    record = {"did": "d", "finalState": "COMPLETE", "created": START_MS, "completed": START_MS + 5}
    journal.append(Kind.PROVENANCE, json.dumps([record, {**record, "systemName": "own"}]).encode(), "stamped")
    journal.close()
    both(spark, JournalSource(tmp_path / "home"), tmp_path)
    assert {"stamped", "own"} <= {row.system_name for row in rows(tmp_path / "spark")}


def test_a_source_without_events_gives_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    Journal(tmp_path / "home").close()
    report = rebuild_on_spark(spark, JournalSource(tmp_path / "home"), tmp_path / "root", WANTED)
    assert (report.parts, report.entries, report.files) == (0, 0, ())
    assert find(tmp_path / "root") == []


def test_only_reports_come_to_the_driver() -> None:
    import waybill.spark.rebuilding as module

    text = Path(module.__file__).read_text(encoding="utf-8")
    assert text.count(".collect()") == 2
    assert "toPandas" not in text
