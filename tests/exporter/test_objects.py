"""Rebuilds from and into object stores give the same rows as from and into folders."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
import zstandard
from events import event
from layouts import HOUR_MS, START_MS, DiesWhenDone, Layout, StoppedError
from proxy import Fault, Proxy
from stores import Store, new_bucket

from waybill.exporter import Source, SourceError, SourceUnreachableError, Wanted, open_source, rebuild
from waybill.exporter.rebuilding import RebuildReport, begin_job, place_below, rebuild_remote
from waybill.exporter.sources import LinesSource, list_objects, open_object
from waybill.transport import Journal, Kind, NotFoundError, Settings, flush
from waybill.transport.files import Files

if TYPE_CHECKING:
    from waybill.exporter.rebuilding.resumable_job import Plan
    from waybill.facets import ProvenanceRecord

WANTED = Wanted(system_name="host")


def body(number: int, *, faceted: bool) -> bytes:
    facet = {"_producer": "p", "_schemaURL": "s", "did": f"d{number:03}", "systemName": "own"}
    facets = {"waybill_deltaFile": facet} if faceted else {}
    at = f"2026-01-01T0{number % 3}:00:00.{number:03}Z"
    return event(f"r{number:03}", at=at, job="edge/job", facets=facets)


BODIES = [body(number, faceted=number % 2 == 0) for number in range(120)]


def expected(folder: Path) -> list[ProvenanceRecord]:
    """The result of a rebuild from a local file into a folder."""
    (folder / "lines").write_bytes(b"\n".join(BODIES))
    rebuild(LinesSource((folder / "lines",)), folder / "expected", WANTED)
    return Layout(folder / "expected").rows()


def from_url(name: str, *places: str, settings: Settings) -> Source:
    return open_source(name, places, settings)


def test_lines_of_a_bucket_plain_and_compressed_give_the_rows_of_those_on_a_disk(
    bucket: Store, tmp_path: Path, settings: Settings
) -> None:
    bucket.put("logs/a.jsonl", b"\n".join(BODIES[:60]))
    bucket.put("logs/older/b.gz", gzip.compress(b"\n".join(BODIES[60:90])))
    bucket.put("logs/older/c.zst", zstandard.compress(b"\n".join(BODIES[90:])))
    bucket.put("logs/.hidden", b"nonsense")
    source = from_url("jsonl", f"{bucket.url}/logs", settings=settings)
    assert isinstance(source, LinesSource)
    report = rebuild(msgspec.structs.replace(source, part_bytes=5_000), tmp_path / "again", WANTED)
    assert (report.entries, report.is_whole, report.parts > 3) == (120, True, True)
    assert Layout(tmp_path / "again").rows() == expected(tmp_path)
    one = from_url("jsonl", f"{bucket.url}/logs/older/b.gz", settings=settings)
    assert rebuild(one, tmp_path / "one", WANTED).entries == 30


def test_an_object_is_read_and_sought_by_the_ranges_that_are_asked_for(bucket: Store) -> None:
    data = b"\n".join(BODIES)
    bucket.put("logs/a.jsonl", data)
    (name,) = list_objects(f"{bucket.url}/logs")
    with open_object(name, buffer_bytes=1_000) as file:
        assert file.read() == data
        assert file.seek(-len(BODIES[-1]), io.SEEK_END) == len(data) - len(BODIES[-1])
        assert file.read() == BODIES[-1]
        file.seek(len(BODIES[0]) + 1)
        assert file.readline() == BODIES[1] + b"\n"


def test_an_object_that_is_replaced_while_it_is_read_is_said_instead_of_mixed(bucket: Store) -> None:
    bucket.put("logs/a.jsonl", b"a" * 3_000)
    (name,) = list_objects(f"{bucket.url}/logs")
    with open_object(name, buffer_bytes=1_000) as file:
        assert file.read(1_000) == b"a" * 1_000
        bucket.put("logs/a.jsonl", b"b" * 3_000)
        with pytest.raises(SourceUnreachableError, match=r"/logs/a\.jsonl was replaced while it was read"):
            file.read(1_000)
        bucket.remove("logs/a.jsonl")
        with pytest.raises(SourceUnreachableError, match=r"/logs/a\.jsonl cannot be read .*; check"):
            file.read(1_000)


def test_a_place_where_nothing_is_or_a_store_that_fails_is_said(
    bucket: Store, tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SourceError, match="does not exist"):
        rebuild(from_url("jsonl", f"{bucket.url}/none", settings=settings), tmp_path / "root", WANTED)
    with pytest.raises(SourceError, match="there is no archive"):
        rebuild(from_url("events", bucket.url, settings=settings), tmp_path / "root", WANTED)
    with pytest.raises(NotFoundError, match="not the URL of a supported object store"):
        rebuild(from_url("jsonl", "ftp://host/file", settings=settings), tmp_path / "root", WANTED)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("waybill.exporter.object_stores._RETRIES", 0)
    with pytest.raises(SourceUnreachableError, match="try again"):
        rebuild(from_url("jsonl", f"{bucket.url}/other", settings=settings), tmp_path / "root", WANTED)


def test_what_is_damaged_in_a_bucket_is_said_and_the_rest_is_read(
    bucket: Store, tmp_path: Path, settings: Settings
) -> None:
    bucket.put("logs/a.gz", gzip.compress(b"\n".join(BODIES))[:-40])
    bucket.put("logs/b", BODIES[0] + b"\nnonsense")
    source = from_url("jsonl", f"{bucket.url}/logs", settings=settings)
    report = rebuild(source, tmp_path / "root", WANTED)
    (damaged,) = report.damaged
    assert f"{bucket.url}/logs/a.gz is damaged" in damaged
    assert f"{bucket.url}/logs/b" in (report.first_unreadable or "")
    assert "!" not in f"{damaged}{report.first_unreadable}"


def test_an_archive_in_a_bucket_gives_the_rows_of_the_live_layout(
    bucket: Store, tmp_path: Path, settings: Settings, journal: Journal
) -> None:
    for at in (0, 60):
        journal.append_many((Kind.OPENLINEAGE, one, "") for one in BODIES[at : at + 60])
        assert flush(settings).problems == {}
    journal.close()
    for path in settings.root.glob("events/*/*/*.parquet"):
        bucket.put(f"kept/{path.relative_to(settings.root)}", path.read_bytes())
    source = from_url("events", f"{bucket.url}/kept/", settings=settings)
    report = rebuild(source, tmp_path / "again", WANTED)
    assert (report.parts, report.is_whole) == (2, True)
    assert Layout(tmp_path / "again").rows() == Layout(settings.root).rows() != []


def there(store: Store, folder: Path) -> RebuildReport:
    """Rebuild the test's events into a store."""
    source = LinesSource((folder / "lines",))
    return rebuild_remote(source, store.open(timeout_s=1.0), folder / "staging", WANTED)


def test_a_rebuild_into_a_bucket_gives_the_rows_of_one_into_a_folder_and_merges(
    store: Store, tmp_path: Path
) -> None:
    rows = expected(tmp_path)
    first = there(store, tmp_path)
    assert (first.is_whole, len(first.files)) == (True, len(Layout(tmp_path / "expected").compacted()))
    assert store.rows() == rows
    assert list((tmp_path / "staging").iterdir()) == []
    before = store.files()
    assert there(store, tmp_path).is_whole
    assert store.files() == before
    (tmp_path / "lines").write_bytes(body(999, faceted=True))
    assert there(store, tmp_path).is_whole
    assert {row.did for row in store.rows()} == {*(row.did for row in rows), "d999"}
    assert START_MS + HOUR_MS in {row.completed - row.completed % HOUR_MS for row in rows}


def test_two_rebuilds_that_begin_at_once_in_a_bucket_share_one_plan(bucket: Store, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(BODIES[0])
    plans: list[Plan] = []

    def begin(source: LinesSource) -> None:
        with begin_job(source, place_below(bucket.url, source, WANTED), Files()) as job:
            plans.append(job.plan)

    class OvertakenSource(LinesSource, frozen=True):
        def parts(self) -> list[str]:
            begin(LinesSource(self.paths))
            return super().parts()

    begin(OvertakenSource((tmp_path / "lines",)))
    other, overtaken = plans
    assert overtaken == other


def test_a_rebuild_into_a_bucket_that_died_when_it_was_done_hides_nothing_from_the_next(
    store: Store, tmp_path: Path
) -> None:
    expected(tmp_path)
    source = LinesSource((tmp_path / "lines",))
    with pytest.raises(StoppedError):
        rebuild_remote(source, store.open(timeout_s=1.0), tmp_path / "staging", WANTED, files=DiesWhenDone())
    assert list(tmp_path.glob("staging/*/rebuilt.json"))
    (tmp_path / "lines").write_bytes(body(999, faceted=True))
    assert there(store, tmp_path).entries == 1
    assert "d999" in {row.did for row in store.rows()}
    assert list((tmp_path / "staging").iterdir()) == []


def test_a_rebuild_whose_files_do_not_arrive_goes_on_with_the_sending(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = expected(tmp_path)
    with Proxy(s3, lambda _: Fault.BUSY) as proxy:
        store = new_bucket(s3, monkeypatch, through=proxy.address)
        failed = there(store, tmp_path)
        assert not failed.is_whole
        assert all("export again" in why or "not tried" in why for why in failed.failed)
        assert store.rows() == []
        proxy.plan = lambda _: None
        (tmp_path / "lines").unlink()  # nothing is read again
        assert there(store, tmp_path).is_whole
    assert store.rows() == rows
