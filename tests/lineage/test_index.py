from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import events
import pytest
from calling import call
from manual_clock import ManualClock
from waiting import at_once

from waybill.lineage import Index, IndexReader, Lineage
from waybill.lineage.answers import GraphAnswers
from waybill.lineage.graph import OfDependencies
from waybill.lineage.index import INDEX_NAME, KeptIndex
from waybill.transport import Journal, Kind, NotFoundError, Settings, Tracker, flush

if TYPE_CHECKING:
    from collections.abc import Iterator

Rows = dict[str, list[tuple[object, ...]]]

TABLES = ("fact", "value", "run", "place")


def event(run: str, kind: str, at_s: int = 0, *, inputs: tuple[str, ...] = ()) -> bytes:
    at = f"2026-01-31T12:00:{at_s:02}Z"
    return events.event(run, kind, at, inputs=[f"file/{name}" for name in inputs])


def tables_of(home: Path) -> Rows:
    with contextlib.closing(apsw.Connection(str(home / INDEX_NAME))) as connection:
        return {name: connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for name in TABLES}  # noqa: S608 - a name of our own


class Site:
    """A home whose index is kept up step by step, and a reader of it that stays open."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.journal = Journal(settings.home)
        self.index = Index(self.journal, settings, linger_s=0)
        self.kept = KeptIndex(self.journal)

    def append(self, *bodies: bytes) -> None:
        self.journal.append_many([(Kind.OPENLINEAGE, body, "") for body in bodies])

    def catch_up(self) -> None:
        while self.index.step().applied:
            pass

    def tell(self, run: str, kind: str, at_s: int, *inputs: str) -> None:
        """Have the journal accept an event."""
        self.append(event(run, kind, at_s, inputs=inputs))

    def check(self, *, is_open: set[str], reads_a: set[str]) -> None:
        """Check what is known against what is expected, and against a reader that is opened anew."""
        with self.kept.open() as kept, IndexReader.open(self.settings.home, self.journal) as fresh:
            for reader in (kept, fresh):
                assert {file.did for file in reader.open_files()} == is_open
                assert reader.dids_with_input("a") == reads_a
            assert kept.open_runs() == fresh.open_runs()

    def reopen(self, settings: Settings | None = None, now_ms: int | None = None) -> None:
        """As after the death of the runner: what was not committed is gone."""
        self.index.close()
        if now_ms is not None:
            self.journal.close()
            self.journal = Journal(self.settings.home, clock=ManualClock(now_ms))
        self.index = Index(self.journal, settings or self.settings, linger_s=0)


@pytest.fixture
def site(settings: Settings) -> Iterator[Site]:
    site = Site(settings)
    yield site
    site.kept.close()
    site.index.close()
    site.journal.close()


def test_records_that_come_as_such_write_nothing_but_the_place(site: Site) -> None:
    record = {"did": "d", "parentDid": "p", "finalState": "COMPLETE", "created": 1, "completed": 2}
    site.journal.append(Kind.PROVENANCE, json.dumps([record]).encode())
    site.catch_up()
    rows = tables_of(site.settings.home)
    assert {name for name, some in rows.items() if some} == {"place"}


@pytest.mark.parametrize("spoiled", ["no database", "format"])
def test_an_index_that_was_damaged_or_is_of_another_format_is_made_again(site: Site, spoiled: str) -> None:
    site.append(event("r", "START", inputs=("/a", "/b")), event("s", "COMPLETE", inputs=("/a",)))
    site.catch_up()
    before = tables_of(site.settings.home)
    path = site.settings.home / INDEX_NAME
    site.index.close()
    if spoiled == "format":
        with contextlib.closing(apsw.Connection(str(path))) as connection:
            connection.pragma("user_version", 1_000)
    else:
        for name in ("-wal", "-shm"):
            path.with_name(INDEX_NAME + name).unlink(missing_ok=True)
        path.write_text(spoiled)
    with IndexReader.open(site.settings.home, site.journal) as reader:
        assert reader.dids_with_input("a") == {"r", "s"}
    site.reopen()
    site.catch_up()
    assert tables_of(site.settings.home) == before


@pytest.mark.parametrize("names", [("",), ("-wal",)], ids=["database", "log"])
def test_an_index_of_which_a_file_is_deleted_while_it_is_kept_up_is_made_again_at_once(
    site: Site, names: tuple[str, ...]
) -> None:
    site.append(event("r", "START", inputs=("/a", "/b")), event("s", "COMPLETE", inputs=("/a",)))
    site.catch_up()
    before = tables_of(site.settings.home)
    path = site.settings.home / INDEX_NAME
    assert "is missing" not in said_by_status(site.settings.home)
    for name in names:
        path.with_name(INDEX_NAME + name).unlink()
    if "" in names:
        assert f"{path} is missing, and a runner makes it again" in said_by_status(site.settings.home)
    assert (site.index.step().retry_s or 0) <= 2, "nothing new has come, and it looks soon"
    site.catch_up()
    assert tables_of(site.settings.home) == before
    assert "is missing" not in said_by_status(site.settings.home)


def said_by_status(home: Path) -> str:
    return call("status", "--home", home).stderr


def test_what_the_journal_no_longer_has_is_read_from_the_archive(settings: Settings) -> None:
    with contextlib.closing(Journal(settings.home)) as journal:
        journal.append(Kind.OPENLINEAGE, event("r", "START", inputs=("/a",)))
        assert flush(settings).left == {}
        before = tables_of(settings.home)
        journal.append(Kind.OPENLINEAGE, event("s", "COMPLETE", inputs=("/a",)))
        assert flush(settings).left == {}
        assert journal.prune(journal.last_seq() - 1, 2**60)
        whole = tables_of(settings.home)
        assert whole != before
        for path in settings.home.glob(f"{INDEX_NAME}*"):
            path.unlink()
        with IndexReader.open(settings.home, journal) as reader:
            assert reader.open_files() == []
            assert "lacks what the journal has deleted" in (reader.lack or "")
        notes = Lineage.open(settings.home).find().notes
        assert any("lacks what the journal has deleted" in note for note in notes)
        assert flush(settings).left == {}
        again = tables_of(settings.home)
    assert {**again, "place": []} == {**whole, "place": []}


def test_an_open_file_tells_what_it_began_last_wherever_that_was_noted(settings: Settings) -> None:
    def told() -> tuple[str | None, int] | None:
        with IndexReader.open(settings.home, journal) as reader:
            return next(((file.transform, file.last_ms) for file in reader.open_files()), None)

    with (
        contextlib.closing(Journal(settings.home)) as journal,
        Tracker(settings=settings) as tracker,
        tracker.file("a.csv", data_source="in") as file,
    ):
        for name in ("decrypt", "unpack"):
            with file.transform(name):
                assert told() == (name, journal.read(journal.last_seq() - 1)[0].received_ms)
        noted = told()
        flush(settings)
        assert told() == noted
        assert journal.prune(journal.last_seq(), 2**60)
        assert told() == noted
        (settings.home / INDEX_NAME).unlink()
        flush(settings)
        assert told() == noted
        file.egress("lake")
        assert told() is None


def test_what_was_told_long_ago_is_forgotten_if_the_settings_say_so(site: Site) -> None:
    site.append(event("r", "START", inputs=("/a",)), event("s", "COMPLETE"))
    site.catch_up()
    kept = tables_of(site.settings.home)
    far_ms = 2**42
    site.reopen(now_ms=far_ms)
    site.index.step()
    still_open = [row for row in kept["run"] if row[1] is not None]
    assert tables_of(site.settings.home) == {**kept, "run": still_open}
    assert [row[0] for row in still_open] == ["r"]
    site.reopen(site.settings.with_values({"lineage_retain_days": 1}, "tests"), now_ms=far_ms)
    site.index.step()
    rows = tables_of(site.settings.home)
    assert (rows["fact"], rows["value"], rows["run"]) == ([], [], [])


def test_the_power_takes_nothing_from_the_journal_that_the_index_has(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.append(event("r", "START"))
    site.catch_up()
    synced: list[tuple[str, int]] = []

    def note(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((path.name, len(tables_of(site.settings.home)["run"])))

    monkeypatch.setattr(os, "fsync", note)  # SQLite has its own
    with contextlib.closing(Journal(site.settings.home)) as emitter:
        emitter.append(Kind.OPENLINEAGE, event("s", "START"), durable=False)
    site.index.step()
    assert synced == [("journal.db-wal", 1)], "before the index has it"
    assert len(tables_of(site.settings.home)["run"]) == 2


def test_what_was_accepted_since_is_in_the_next_answer_also_of_an_index_that_was_made_again(
    site: Site,
) -> None:
    site.check(is_open=set(), reads_a=set())
    site.tell("one", "START", 1, "/a")
    site.check(is_open={"one"}, reads_a={"one"})
    site.tell("two", "START", 2)
    site.tell("one", "COMPLETE", 3)
    site.check(is_open={"two"}, reads_a={"one"})
    site.catch_up()
    site.check(is_open={"two"}, reads_a={"one"})
    site.tell("two", "COMPLETE", 4, "/a")
    site.tell("one", "START", 5)
    site.check(is_open={"one"}, reads_a={"one", "two"})
    for path in site.settings.home.glob("index.db*"):
        path.unlink()
    site.check(is_open={"one"}, reads_a={"one", "two"})
    site.catch_up()
    site.check(is_open={"one"}, reads_a={"one", "two"})


def read_of(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the entries that are read from now on, each as often as it is."""
    read: list[int] = []
    plain = journal.read

    def noted(after: int, *, limit: int = 0, max_bytes: int = 0) -> object:
        entries = plain(after, limit=limit, max_bytes=max_bytes) if max_bytes else plain(after, limit=limit)
        read.extend(entry.seq for entry in entries if max_bytes)  # else it asks for the first entry
        return entries

    monkeypatch.setattr(journal, "read", noted)
    return read


def test_only_what_is_new_is_read(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for at in range(5):
        site.tell(f"run-{at}", "START", at)
    site.check(is_open={f"run-{at}" for at in range(5)}, reads_a=set())
    site.tell("last", "START", 9)
    read = read_of(site.journal, monkeypatch)
    for expected in ([site.journal.last_seq()], []):
        read.clear()
        with site.kept.open() as reader:
            assert len(reader.open_files()) == 6
        assert read == expected


def test_a_name_that_nothing_has_does_not_make_the_next_question_begin_anew(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.tell("one", "START", 1, "/a")
    answers = GraphAnswers(site.journal, site.kept)
    read = read_of(site.journal, monkeypatch)
    for _ in range(3):
        with pytest.raises(NotFoundError, match=r"^no dataset, column or job has the name 'file:/b'$"):
            answers.answer(OfDependencies("file:/b"))
    assert answers.answer(OfDependencies("file:/a")).node.name == "/a"
    assert read == [site.journal.last_seq()]


def test_a_reader_between_questions_holds_up_no_checkpoint(site: Site) -> None:
    site.tell("one", "START", 1)
    site.catch_up()
    site.check(is_open={"one"}, reads_a=set())
    site.tell("two", "START", 2)
    site.catch_up()
    with contextlib.closing(Index(site.journal, site.settings, linger_s=0)) as index:
        assert index._open().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0] == 0  # noqa: SLF001


def test_questions_of_several_threads_each_have_a_reader(site: Site) -> None:
    site.tell("one", "START", 1)
    found: list[int] = []

    def ask() -> None:
        for _ in range(20):
            with site.kept.open() as reader, site.kept.open() as other:
                found.extend((len(reader.open_files()), len(other.open_files())))

    at_once(ask for _ in range(3))
    assert found == [1] * 120
