"""The index that stays open between questions answers as one that is opened for each."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from events import event
from waiting import at_once

from waybill.lineage.answers import GraphAnswers
from waybill.lineage.graph import OfDependencies
from waybill.lineage.index import Index, IndexReader, KeptIndex
from waybill.transport import Journal, Kind, NotFoundError, Settings
from waybill.transport.config import agree

if TYPE_CHECKING:
    from collections.abc import Iterator


class Site:
    """A home, its index, and a kept reader of it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.journal = Journal(settings.home)
        agree(self.journal, settings)
        self.kept = KeptIndex(self.journal)

    def tell(self, run: str, kind: str, at_s: int, *inputs: str) -> None:
        """Have the journal accept an event."""
        at = f"2026-01-31T12:00:{at_s:02}.000Z"
        said = event(run, kind, at, inputs=[f"in/{name}" for name in inputs])
        self.journal.append(Kind.OPENLINEAGE, said)

    def index(self) -> None:
        """Have the index take in what there is."""
        with contextlib.closing(Index(self.journal, self.settings, linger_s=0)) as index:
            while index.step().applied:
                pass

    def check(self, *, is_open: set[str], reads_a: set[str]) -> None:
        """Check what is known against what is expected, and against a reader that is opened anew."""
        with self.kept.open() as kept, IndexReader.open(self.journal.home, self.journal) as fresh:
            for reader in (kept, fresh):
                assert {file.did for file in reader.open_files()} == is_open
                assert reader.dids_with_input("in/a") == reads_a
            assert kept.open_runs() == fresh.open_runs()


@pytest.fixture
def site(settings: Settings) -> Iterator[Site]:
    site = Site(settings)
    yield site
    site.journal.close()


def test_what_was_accepted_since_is_in_the_next_answer_also_of_an_index_that_was_made_again(
    site: Site,
) -> None:
    site.check(is_open=set(), reads_a=set())
    site.tell("one", "START", 1, "a")
    site.check(is_open={"one"}, reads_a={"one"})
    site.tell("two", "START", 2)
    site.tell("one", "COMPLETE", 3)
    site.check(is_open={"two"}, reads_a={"one"})
    site.index()
    site.check(is_open={"two"}, reads_a={"one"})
    site.tell("two", "COMPLETE", 4, "a")
    site.tell("one", "START", 5)
    site.check(is_open={"one"}, reads_a={"one", "two"})
    for path in site.settings.home.glob("index.db*"):
        path.unlink()
    site.check(is_open={"one"}, reads_a={"one", "two"})
    site.index()
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
    site.tell("one", "START", 1, "a")
    answers = GraphAnswers(site.journal, site.kept)
    read = read_of(site.journal, monkeypatch)
    for _ in range(3):
        with pytest.raises(NotFoundError, match=r"^no dataset, column or job has the name 'in/b'$"):
            answers.answer(OfDependencies("in/b"))
    assert answers.answer(OfDependencies("in/a")).node.name == "a"
    assert read == [site.journal.last_seq()]


def test_a_reader_between_questions_holds_up_no_checkpoint(site: Site) -> None:
    site.tell("one", "START", 1)
    site.index()
    site.check(is_open={"one"}, reads_a=set())
    site.tell("two", "START", 2)
    site.index()
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
