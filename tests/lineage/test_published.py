"""The index is published beside the compacted files, so that a root and an export answer as their home."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from manual_clock import ManualClock

from waybill.exporter import IncompleteError, Query, export, open_destination
from waybill.exporter.relations import relation_files
from waybill.lineage import Lineage
from waybill.lineage.index import FolderRelations, Index, IndexReader, Published
from waybill.transport import Journal, Settings, TrackedFile, Tracker, flush

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def tracker(settings: Settings) -> Iterator[Tracker]:
    with Tracker(settings=settings) as tracker:
        yield tracker


def joined(tracker: Tracker) -> tuple[TrackedFile, TrackedFile, TrackedFile]:
    """Two files, and one that was joined from them."""
    with tracker.file("a.csv", data_source="in") as a, tracker.file("b.csv", data_source="in") as b:
        ab = tracker.join([a, b], "ab.csv", data_source="daily")
    with ab:
        ab.egress("lake")
    return a, b, ab


def published(root: Path) -> IndexReader:
    with Published(FolderRelations(root), root).open() as reader:
        return reader


def test_a_root_and_an_export_know_what_is_open_and_what_has_the_same_content_as_their_home_does(
    settings: Settings, tracker: Tracker, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_bytes(b"orders")
    given = {"data_source": "in", "path": tmp_path / "a.csv", "fingerprint": True, "force": True}
    for name in ("a.csv", "again.csv"):
        with tracker.file(name, **given) as file:  # type: ignore[arg-type]
            file.egress("lake")
    lost = tracker.file("lost.csv", data_source="in")
    flush(settings)
    export(settings.root, open_destination(tmp_path / "export"))
    home, *others = (
        Lineage.open(place) for place in (settings.home, settings.root, (tmp_path / "export").as_uri())
    )
    [alike] = home.duplicates()
    assert [(file.filename, file.forced, file.input_bytes) for file in alike] == [
        ("a.csv", True, 6),
        ("again.csv", True, 6),
    ]
    missing = Query(missing_sink="lake")
    for place in others:
        assert place.duplicates() == [alike]
        assert [file.did for file in place.open_files()] == [lost.did]
        assert place.open_files(Query(filename="lost*")) == home.open_files()
        assert place.open_files(missing) == home.open_files(missing)
        assert (place.find(missing), place.count(missing)) == ([], 1)
        assert place.find(missing).notes == ("1 more file has not ended",)


def test_of_an_open_file_those_annotations_are_published_that_its_record_will_have(
    settings: Settings,
) -> None:
    settings = settings.with_values({"provenance_annotations_allowed": "customer"}, "tests")
    given = {"customer": "acme", "patient": "Ada"}
    with Tracker(settings=settings) as tracker:
        file = tracker.file("slow.csv", data_source="in", annotations=given)
        flush(settings)
        [found] = published(settings.root).open_files()
        assert found.annotations == {"customer": "acme"}
        for place in (settings.home, settings.root):
            for key, value in given.items():
                query = Query(annotations={key: value})
                assert len(Lineage.open(place).open_files(query)) == (key == "customer")
        file.cancel()


def test_what_has_changed_is_read_again_and_nothing_else(settings: Settings, tracker: Tracker) -> None:
    _, b, ab = joined(tracker)
    flush(settings)
    opened = Published(FolderRelations(settings.root), settings.root)
    with opened.open() as before, opened.open() as again_opened:
        assert again_opened is before
    _, other, again = joined(tracker)
    flush(settings)
    with opened.open() as reader:
        assert reader.children_of([b.did, other.did]) == {b.did: (ab.did,), other.did: (again.did,)}


def test_an_index_that_is_made_again_publishes_the_same(settings: Settings, tracker: Tracker) -> None:
    joined(tracker)
    tracker.file("slow.csv", data_source="in")
    flush(settings)
    [(_, path)] = relation_files(settings.root)
    before = path.read_bytes()
    path.unlink()
    for one in settings.home.glob("index.db*"):
        one.unlink()
    flush(settings)
    assert path.read_bytes() == before


def test_a_file_that_cannot_be_read_is_an_error_that_names_it(settings: Settings, tracker: Tracker) -> None:
    _, _, ab = joined(tracker)
    flush(settings)
    [(_, path)] = relation_files(settings.root)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(IncompleteError, match=path.name):
        Lineage.open(settings.root).trace(ab.did)


def test_without_a_flush_a_day_is_published_after_a_while(settings: Settings, tracker: Tracker) -> None:
    joined(tracker)
    clock = ManualClock(time.time_ns() // 1_000_000)
    with contextlib.closing(Journal(settings.home, clock=clock)) as journal:
        index = Index(journal, settings, linger_s=0)
        with contextlib.closing(index):
            while (step := index.step()).applied:
                pass
            assert step.retry_s is not None
            assert 0 < step.retry_s <= 60
            assert list(relation_files(settings.root)) == []
            clock.move(61)
            index.step()
            assert len(list(relation_files(settings.root))) == 1
