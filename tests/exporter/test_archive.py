from __future__ import annotations

import contextlib
import itertools
import json
import random
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from layouts import kinds
from manual_clock import ManualClock
from sites import archived_entries

from waybill.exporter import Wanted, open_archive, rebuild
from waybill.exporter.archive import EVENTS_SCHEMA, Archive, archived_files
from waybill.exporter.names import RawName, hour_of
from waybill.exporter.sources import EventsSource
from waybill.lineage import find
from waybill.transport import Journal, Kind, Settings, flush
from waybill.transport.files import Files
from waybill.transport.runner import Projection as Protocol, Runner, statuses

EVENT = (
    b'{"eventTime": "2026-01-01T01:00:00.25+01:00", "eventType": "COMPLETE", "producer": "p",'
    b' "run": {"runId": "r-1"}, "job": {"namespace": "edge", "name": "load"}}'
)


def append(journal: Journal, *bodies: bytes) -> None:
    journal.append_many((Kind.OPENLINEAGE, body, "stamped") for body in bodies)


def append_at(journal: Journal, moment_ms: int, monkeypatch: pytest.MonkeyPatch, *bodies: bytes) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(time, "time_ns", lambda: moment_ms * 1_000_000)
        append(journal, *bodies)


def test_the_archive_is_on_unless_it_is_turned_off(journal: Journal, settings: Settings) -> None:
    archive = open_archive(journal, settings)
    assert isinstance(archive, Protocol)
    assert archive.stores
    off = msgspec.structs.replace(settings, archive_enabled=False)
    assert open_archive(journal, off) is None


def test_every_entry_of_every_kind_is_kept_as_it_was_accepted(journal: Journal, settings: Settings) -> None:
    append(journal, EVENT, b"no JSON at all", b'{"run": 7}', b'{"eventTime": "never"}')
    journal.append(Kind.PROVENANCE, b'[{"did": "d"}]', "deltafi")
    journal.mark(b"settle")
    journal.mark(b"flush")
    before = journal.read(0)
    archive = Archive(journal, settings)
    assert archive.step().applied == len(before)
    assert archived_entries(settings.root) == before
    assert journal.cursor("archive") == before[-1].seq
    assert archive.pending() == 0


def test_a_file_can_be_read_by_anybody_and_says_what_its_entries_are(
    journal: Journal, settings: Settings
) -> None:
    append(journal, EVENT)
    Archive(journal, settings).finish()
    ((name, path),) = archived_files(settings.root)
    assert name == RawName(journal.node, 1, 1)
    arrived = journal.read(0)[0].received_ms
    assert (path.parent.parent.name, path.parent.name) == hour_of(arrived)
    table = pq.ParquetFile(path).read()
    assert table.schema.remove_metadata() == EVENTS_SCHEMA
    (row,) = table.to_pylist()
    assert row == {
        "sequence": 1,
        "node": journal.node,
        "arrived": datetime.fromtimestamp(arrived / 1_000, UTC),
        "event_time": datetime(2026, 1, 1, 0, 0, 0, 250_000, UTC),
        "run_id": "r-1",
        "event_type": "COMPLETE",
        "job_namespace": "edge",
        "job_name": "load",
        "kind": "OPENLINEAGE",
        "system_name": "stamped",
        "body": EVENT,
    }


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timed(home: Path, clock: ManualClock) -> Iterator[Journal]:
    """The journal of that home, on that clock."""
    with contextlib.closing(Journal(home, clock=clock)) as opened:
        yield opened


def test_entries_gather_until_they_are_old_enough_or_the_runner_ends(
    timed: Journal, clock: ManualClock, settings: Settings
) -> None:
    journal, archive = timed, Archive(timed, settings, gather_s=0.25)
    append(journal, b"1")
    step = archive.step()
    assert step.applied == 0
    assert 0 < (step.retry_s or 0) <= 0.25
    assert (archive.pending(), archived_entries(settings.root)) == (0, [])
    append(journal, b"2")
    assert archive.pending() == 1
    clock.move(0.25)
    assert archive.step().applied == 2
    assert len(archived_files(settings.root)) == 1
    append(journal, b"3")
    assert archive.step().applied == 0
    archive.finish()
    assert [entry.body for entry in archived_entries(settings.root)] == [b"1", b"2", b"3"]


def test_a_file_holds_entries_of_one_hour(
    journal: Journal, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_ms = 1_767_225_600_000
    append_at(journal, start_ms, monkeypatch, b"1", b"2")
    append_at(journal, start_ms + 3_600_000, monkeypatch, b"3")
    append_at(journal, start_ms + 3_600_000 * 30, monkeypatch, b"4")
    Archive(journal, settings).finish()
    found = [
        ("/".join(path.relative_to(settings.root).parts[:3]), (name.first, name.last))
        for name, path in archived_files(settings.root)
    ]
    assert found == [
        ("events/20260101/00", (1, 2)),
        ("events/20260101/01", (3, 3)),
        ("events/20260102/06", (4, 4)),
    ]


def test_a_batch_is_bounded(journal: Journal, settings: Settings) -> None:
    append(journal, *(b"%d" % number for number in range(13)))
    archive = Archive(journal, settings, entries_max=4, read_max=3)
    assert [archive.step().applied for _ in range(3)] == [6, 6, 0]
    archive.finish()
    assert [entry.body for entry in archived_entries(settings.root)] == [
        b"%d" % number for number in range(13)
    ]


def work(journal: Journal, settings: Settings, files: Files) -> None:
    archive = Archive(journal, settings, files=files)
    while archive.step().applied:
        pass
    archive.finish()


@pytest.mark.parametrize("blocked", ["events", "provenance/raw"])
def test_the_journal_lets_go_of_nothing_that_archive_or_layout_have_not_made_durable(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, blocked: str
) -> None:
    bodies = [event(f"r{at}", note="n" * 200_000) for at in range(6)]
    journal = Journal(settings.home)
    append(journal, *bodies)
    mark = journal.mark(b"flush")
    journal.max_bytes = 2**20
    settings = settings.with_values({"provenance_enabled": True}, "tests")
    # A runner prunes in its first round alone.
    monkeypatch.setattr("waybill.transport.runner.runner._HOUSEKEEPING_EVERY_S", 3_600.0)

    def work(*through: str) -> None:
        """Run until these projections have processed all entries, and finish."""
        rounds = itertools.count()
        Runner(journal, settings).run(
            until=lambda: next(rounds) > 0 and all(journal.cursor(name) >= mark for name in through)
        )

    (settings.root / blocked).parent.mkdir(parents=True, exist_ok=True)
    (settings.root / blocked).touch()
    for _ in range(3):
        work({"events": "layout", "provenance/raw": "archive"}[blocked])
        assert [entry.body for entry in journal.read(0)[:6]] == bodies
    (settings.root / blocked).unlink()
    everything = statuses(journal).keys()
    work(*everything)
    assert [entry.body for entry in journal.read(0)[:6]] == bodies
    work(*everything)
    assert len(journal.read(0)) == 1, "all but the newest are in both"
    journal.close()
    flush(settings)
    assert len(find(settings.root)) == 6
    rebuild(EventsSource(settings.root), settings.root / "again", Wanted(system_name="tests"))
    assert find(settings.root / "again") == find(settings.root)


def event(run: str, **more: object) -> bytes:
    """The end of a run."""
    return json.dumps({**json.loads(EVENT), "run": {"runId": run}, **more}).encode()


# -- tampering ---------------------------------------------------------------------------------------------


@pytest.fixture
def files(journal: Journal, settings: Settings) -> list[Path]:
    """Three files of one journal, the last one by another process."""
    for body in (b"1", b"2"):
        append(journal, body)
        Archive(journal, settings).finish()
    append(journal, b"3")
    journal.mark(b"flush")
    work(journal, settings, Files())
    assert kinds(settings.root) == []
    return [path for _, path in archived_files(settings.root)]


def said(path: Path, settings: Settings, kind: str) -> tuple[str, str]:
    return str(path.relative_to(settings.root)), kind


def test_an_archive_file_of_which_a_byte_is_changed_is_found(
    files: list[Path], settings: Settings, seed: int
) -> None:
    content = files[1].read_bytes()
    chance = random.Random(seed)  # noqa: S311 - nothing is secret here
    for at in chance.sample(range(len(content)), 16):
        changed = bytearray(content)
        changed[at] ^= 1 << (at % 8)
        files[1].write_bytes(changed)
        # Usually altered or unreadable; a file without a readable seal is unrecorded.
        assert str(files[1].relative_to(settings.root)) in {name for name, _ in kinds(settings.root)}, at
    files[1].write_bytes(content)
    assert kinds(settings.root) == []


def test_archive_files_that_are_removed_are_found_the_last_one_too(
    files: list[Path], settings: Settings
) -> None:
    files[1].unlink()
    assert kinds(settings.root) == [said(files[2], settings, "chain"), said(files[1], settings, "removed")]
    files[2].unlink()
    assert said(files[2], settings, "removed") in kinds(settings.root)


def test_an_archive_file_that_is_slipped_in_is_found(
    files: list[Path], settings: Settings, tmp_path: Path
) -> None:
    other = msgspec.structs.replace(settings, home=tmp_path / "other", root=tmp_path / "other")
    stranger = Journal(other.home)
    append(stranger, b"forged")
    Archive(stranger, other).finish()
    stranger.close()
    ((_, forged),) = archived_files(other.root)
    beside = files[0].with_name(forged.name)
    shutil.copy(forged, beside)
    assert kinds(settings.root) == [said(beside, settings, "unrecorded")]
    beside.unlink()
    name = RawName.parse(files[0].name)
    assert name is not None
    shutil.copy(files[0], files[0].with_name(f"{name.node}-90-91.parquet"))
    assert {kind for _, kind in kinds(settings.root)} == {"unrecorded", "order", "chain", "gap"}


def test_the_chain_shows_what_is_missing_where_there_is_no_ledger(
    files: list[Path], settings: Settings
) -> None:
    shutil.rmtree(settings.root / "provenance" / "ledger")
    assert kinds(settings.root) == []
    files[0].unlink()
    gap = (f"events/{files[0].name}", "gap")
    assert kinds(settings.root) == [said(files[1], settings, "chain"), gap]
