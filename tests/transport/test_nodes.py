"""The nodes of a journal, and the root's record of them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from manual_clock import ManualClock
from waiting import at_once

from waybill.transport import Journal, JournalFullError, Kind, RootError, Settings, locks
from waybill.transport.files import Files
from waybill.transport.home import Home
from waybill.transport.journal import Node
from waybill.transport.root import CLAIMS, MARKER, Filing, check_root, known_root


def test_a_journal_has_one_node_until_it_is_renewed(journal: Journal) -> None:
    assert journal.nodes() == (Node(journal.node),)
    before = journal.node
    journal.append(Kind.OPENLINEAGE, b"1")
    renewed = journal.renew_node(before, "it was lost", lost=(2, 7))
    assert renewed is not None
    assert journal.node == renewed.name != before
    assert journal.nodes() == (Node(before), renewed)
    assert (renewed.after, renewed.why, renewed.lost) == (1, "it was lost", (2, 7))
    assert journal.renew_node(before, "as somebody else saw it, too") is None
    assert journal.nodes() == (Node(before), renewed)


def a_commit_of_a_projection(journal: Journal) -> None:
    journal.commit("p", cursor=1)


def a_commit_that_fails(journal: Journal) -> None:
    journal.max_bytes = 0
    with pytest.raises(JournalFullError):
        journal.append(Kind.OPENLINEAGE, b"too much")
    journal.max_bytes = 2**30


@pytest.mark.parametrize("meanwhile", [lambda _: None, a_commit_of_a_projection, a_commit_that_fails])
def test_a_process_knows_the_node_of_the_numbers_that_it_gives(
    home: Path, meanwhile: Callable[[Journal], None]
) -> None:
    """A receipt names both the node and the numbers, and another process may renew the node at any time."""
    journal, other = Journal(home, clock=ManualClock(each_reading_s=1.0)), Journal(home)
    journal.append(Kind.OPENLINEAGE, b"1")
    other.renew_node(other.node, "a test")
    assert journal.node != other.node
    meanwhile(journal)
    journal.append(Kind.OPENLINEAGE, b"2")
    assert journal.node == other.node
    journal.close()
    other.close()


class SeenFiles(Files):
    """Files that say which folders' names were made durable."""

    def __init__(self) -> None:
        self.synced: list[Path] = []

    def fsync_folder(self, path: Path) -> None:
        super().fsync_folder(path)
        self.synced.append(path)


def test_what_was_published_by_somebody_who_died_is_made_durable_by_the_next(
    journal: Journal, root: Path, tmp_path: Path
) -> None:
    """It is there to be read, and the power could take it."""
    journal.append_many((Kind.OPENLINEAGE, b"%d" % at, "") for at in range(9))
    filing = Filing(journal, root, "layout", "files", Files())
    filing.open()
    node = filing.begin(1, 4)
    after_claim = SeenFiles()
    Filing(journal, root, "layout", "files", after_claim).begin(1, 4)
    assert root / CLAIMS / node in after_claim.synced
    with contextlib.closing(Journal(tmp_path / "other")) as other:
        after_marker = SeenFiles()
        Filing(other, root, "layout", "files", after_marker).open()
        assert root in after_marker.synced


def test_homes_that_begin_at_once_make_one_marker(tmp_path: Path, root: Path) -> None:
    journals = [Journal(tmp_path / str(at)) for at in range(4)]
    filings = [Filing(journal, root, "layout", "files", Files()) for journal in journals]
    at_once(filing.open for filing in filings)
    assert len({known.id for journal in journals if (known := known_root(journal))}) == 1
    for journal in journals:
        check_root(journal, root)
        journal.close()
    assert {path.name for path in root.iterdir()} == {MARKER, CLAIMS}


@pytest.mark.parametrize("damage", [b"", b"{", b"[]"])
def test_a_damaged_marker_or_claim_is_told_and_not_replaced(
    journal: Journal, root: Path, damage: bytes
) -> None:
    journal.append(Kind.OPENLINEAGE, b"1")
    filing = Filing(journal, root, "layout", "files", Files())
    filing.open()
    node = filing.begin(1, 1)
    filing.done(node, 1)
    for path in (root / MARKER, root / CLAIMS / node / "layout.json"):
        content = path.read_bytes()
        path.write_bytes(damage)
        with pytest.raises(RootError, match="is damaged"):
            filing.open()
        assert path.read_bytes() == damage
        path.write_bytes(content)
    check_root(journal, root)


def test_emitting_needs_no_root(settings: Settings) -> None:
    """It may be on a share that only the runner's process can see, or that nobody may read."""
    settings.root.parent.mkdir(exist_ok=True)
    settings.root.write_text("in the way")
    home = Home.open(settings)
    home.append(Kind.OPENLINEAGE, b"1", "")
    home.close()


def test_a_runner_can_be_taken_over_from(home: Path) -> None:
    home.mkdir()
    lease = locks.take(home)
    assert lease is not None
    assert locks.take_over(home, timeout_s=0.01) is None
    assert not locks.is_wanted(home)
    wanted = threading.Event()

    def give_way() -> None:
        while not locks.is_wanted(home):
            pass
        wanted.set()
        lease.release()

    thread = threading.Thread(target=give_way)
    thread.start()
    taken = locks.take_over(home, timeout_s=30)
    thread.join()
    assert taken is not None
    assert wanted.is_set()
    taken.release()
