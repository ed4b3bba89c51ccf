"""Sources restricted to entries since an instant do not even name earlier parts."""

from __future__ import annotations

import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from stores import new_bucket

from waybill.exporter.sources import EventsSource, JournalSource
from waybill.transport import Journal, Kind

NAMES = [f"events/{hour}/{'0' * 16}-1-9.parquet" for hour in ("20251231/23", "20260101/00", "20260101/01")]
SINCE_MS = int(datetime(2026, 1, 1, 0, 30, tzinfo=UTC).timestamp() * 1000)


def test_an_archive_names_the_files_of_the_hours_since(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    assert EventsSource(tmp_path).parts() == NAMES
    assert EventsSource(tmp_path, SINCE_MS).parts() == NAMES[1:]


def test_so_does_one_in_an_object_store(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = new_bucket(s3, monkeypatch)
    for name in NAMES:
        bucket.put(name, b"entries")
    assert len(EventsSource(bucket.url).parts()) == 3
    since = EventsSource(bucket.url, SINCE_MS).parts()
    assert [name.partition("!/")[2] for name in since] == [name.removeprefix("events/") for name in NAMES[1:]]


@pytest.mark.parametrize(("since_s", "expected"), [(-60, [1, 2, 3, 4, 5]), (1800, [3, 4, 5]), (7200, [])])
def test_a_journal_gives_the_entries_that_arrived_since(
    tmp_path: Path, since_s: int, expected: list[int]
) -> None:
    now_ms = time.time_ns() // 1_000_000
    with closing(Journal(tmp_path)) as journal:
        journal.append_many([(Kind.OPENLINEAGE, b"1", ""), (Kind.OPENLINEAGE, b"2", "")])
        journal.mark(b"settle", at_ms=now_ms + 3_600_000)
        journal.append_many([(Kind.OPENLINEAGE, b"3", ""), (Kind.OPENLINEAGE, b"4", "")])
    source = JournalSource(tmp_path, now_ms + since_s * 1000)
    found = [entry.at for part in source.parts() for batch in source.read(part) for entry in batch]
    assert found == expected
