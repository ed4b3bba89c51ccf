"""A journal whose files somebody deletes, replaces or truncates while programs have it open."""

from __future__ import annotations

import logging
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from manual_clock import ManualClock

from waybill.transport import Journal, JournalError, Kind, Settings, Tracker, flush, locks
from waybill.transport.config import agree

EVENT = Kind.OPENLINEAGE


def bodies(journal: Journal) -> list[bytes]:
    return [entry.body for entry in journal.read(0, limit=1_000_000)]


def keeps_nothing(journal: Journal) -> None:
    with pytest.raises(JournalError, match="nothing more is kept"):
        journal.append(EVENT, b"too late")


def files_of(home: Path, ending: str = "*") -> list[Path]:
    return sorted(home.glob(f"journal.db{ending}"))


def delete(home: Path) -> None:
    for path in files_of(home):
        path.unlink()


def delete_all(home: Path) -> None:
    """What somebody does who wants a new journal, and has not ended every program."""
    delete(home)
    (home / "journal.lock").unlink()


def delete_log(home: Path) -> None:
    (home / "journal.db-wal").unlink()


def replace(home: Path) -> None:
    (home / "other").write_bytes(b"another file")
    (home / "other").rename(home / "journal.db")


def replace_log(home: Path) -> None:
    (home / "other").write_bytes(b"")
    (home / "other").rename(home / "journal.db-wal")


def begin_anew(error: JournalError) -> None:
    """Do as an error says to have a new journal."""
    command = str(error).partition("run `")[2].partition("`")[0]
    subprocess.run(command, shell=True, check=True)  # noqa: S602 - our own sentence's command


def damage(home: Path) -> None:
    """Write nonsense over the beginning of the database, as a disk that fails may."""
    (home / "journal.db-wal").unlink()
    (home / "journal.db-shm").unlink()
    with (home / "journal.db").open("r+b") as file:
        file.write(b"nonsense" * 512)


def empty(home: Path) -> None:
    """Leave nothing in the database, as a disk that was full or a power failure may."""
    delete(home)
    (home / "journal.db").touch()


@pytest.mark.parametrize(
    ("lose", "says"),
    [
        (damage, "is damaged or is no journal"),
        (delete, "is missing from a home that had one"),
        (empty, "is missing from a home that had one"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_home_without_its_journal_begins_no_other_until_somebody_does_as_the_error_says(
    settings: Settings, home: Path, lose: Callable[[Path], None], says: str
) -> None:
    Tracker(settings=settings).close()
    lost = Journal(home)
    node = lost.node
    lost.close()
    lose(home)
    strict = settings.with_values({"strict": True}, "tests")
    for _ in range(2):
        with pytest.raises(JournalError, match=says) as raised:
            Tracker(settings=strict)
        assert str(raised.value).count("`") == 2, "one command"
    begin_anew(raised.value)
    assert not Journal.exists(home)
    Tracker(settings=settings).close()
    journal = Journal(home)
    assert journal.node != node
    journal.close()


def test_a_journal_that_a_crash_left_half_made_is_made_by_the_next_program(home: Path) -> None:
    home.mkdir()
    for made in ("journal.lock", "journal.db"):
        (home / made).touch()
        assert not Journal.exists(home)
        Journal(home).close()
        delete_all(home)
        (home / "journal.lock").touch()


def test_a_journal_whose_log_was_lost_within_a_checkpoint_keeps_nothing_until_it_is_moved_away(
    home: Path,
) -> None:
    journal = Journal(home)
    journal.append_many((EVENT, b"%d" % number * 500, "") for number in range(300))
    journal.checkpoint()
    torn = (home / "journal.db").read_bytes()
    journal.append_many((EVENT, b"more %d" % number * 500, "") for number in range(300))
    journal.checkpoint()
    journal.close()
    # A checkpoint copies page after page; here only the first pages are new.
    whole = (home / "journal.db").read_bytes()
    (home / "journal.db").write_bytes(whole[: 8 * 4096] + torn[8 * 4096 :])
    delete_log(home)
    for _ in range(2):
        with pytest.raises(JournalError, match=r"its log is missing: .*; restore a copy, or ") as raised:
            Journal(home)
    begin_anew(raised.value)
    journal = Journal(home)
    assert journal.append(EVENT, b"goes on") == 1
    journal.close()


def test_a_journal_that_is_whole_without_its_log_is_opened(home: Path) -> None:
    journal = Journal(home)
    kept = [b"%d" % number for number in range(50)]
    journal.append_many((EVENT, body, "") for body in kept)
    journal.checkpoint()
    journal.close()
    delete_log(home)
    journal = Journal(home)
    assert bodies(journal) == kept
    journal.close()


def test_a_journal_whose_creation_the_power_interrupted_is_created_anew(home: Path) -> None:
    home.mkdir(exist_ok=True)
    (home / "journal.db").write_bytes(bytes(4096))  # none of the sectors of its first page is on the disk
    # Its magic number; nothing to undo; a nonce; the database had no pages; the sizes of sector and page.
    undo = bytes.fromhex("d9d505f920a163d7") + struct.pack(">5I", 0, 1234, 0, 512, 4096)
    (home / "journal.db-journal").write_bytes(undo.ljust(512, b"\0"))
    journal = Journal(home)
    assert journal.append(EVENT, b"goes on") == 1
    journal.close()
    assert not (home / "journal.db-journal").exists()


@pytest.mark.parametrize("lose", [delete, delete_log, replace, replace_log])
def test_a_journal_that_was_lost_while_open_keeps_nothing_more_and_is_saved(
    home: Path, lose: Callable[[Path], None], journal: Journal
) -> None:
    kept = [b"%d" % number for number in range(50)]
    journal.append_many((EVENT, body, "") for body in kept)
    journal.commit("p", cursor=7, put={"row": b"1"})
    lose(home)
    with pytest.raises(
        JournalError, match=r"nothing more is kept; everything that was acknowledged is in .*saved-"
    ):
        journal.append(EVENT, b"too late")
    with pytest.raises(JournalError, match="nothing more is kept"):
        journal.read(0)
    journal.close()
    for path in files_of(home):
        path.unlink()
    again = Journal(home)
    assert bodies(again) == kept
    assert (again.node, again.cursor("p"), again.state("p")) == (journal.node, 7, {"row": b"1"})
    assert again.append(EVENT, b"more") == 51
    assert [path.name for path in home.glob("*saved*")] == []
    again.close()


@pytest.mark.parametrize("name", ["journal.db", "journal.db-wal"])
def test_a_journal_that_was_truncated_while_open_keeps_nothing_more(
    home: Path, name: str, journal: Journal
) -> None:
    journal.append_many((EVENT, b"%d" % number, "") for number in range(50))
    os.truncate(home / name, 100)
    for _ in range(2):
        with pytest.raises(JournalError, match=f"{name} was truncated"):
            journal.append(EVENT, b"too late")


def test_of_several_that_have_it_open_one_saves_it_and_all_refuse(home: Path) -> None:
    journals = [Journal(home) for _ in range(3)]
    for number, journal in enumerate(journals):
        journal.append(EVENT, b"%d" % number)
    delete(home)
    for journal in journals:
        keeps_nothing(journal)
    assert len(list(home.glob("journal.saved-*"))) == 1
    again = Journal(home)
    assert bodies(again) == [b"0", b"1", b"2"]
    for journal in journals:
        keeps_nothing(journal)
        journal.close()
    assert list(home.glob("journal.saved-*")) == [], "it is saved once only"
    again.append(EVENT, b"3")


@pytest.mark.parametrize("first", ["who has its log open", "who came when its log was gone"])
def test_what_is_saved_is_what_has_all_of_it_whoever_notices_first(
    home: Path, first: str, journal: Journal
) -> None:
    journal.append(EVENT, b"in the database")
    journal.checkpoint()
    journal.append(EVENT, b"in the log")
    for path in files_of(home, "-*"):
        path.unlink()
    script = """
import sys
from pathlib import Path
from waybill.transport import Journal, JournalError
journal = Journal(Path(sys.argv[1]))
print("open", flush=True)
input()
try:
    journal.append(1, b"too late")
except JournalError as error:
    print(error)
"""
    command = [sys.executable, "-c", script, str(home)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as late:
        assert late.stdout is not None
        assert late.stdout.readline() == "open\n"
        delete(home)
        if first == "who has its log open":
            with pytest.raises(JournalError, match="nothing more is kept"):
                journal.append(EVENT, b"too late")
        assert "nothing more is kept" in late.communicate("\n", timeout=60)[0]
    keeps_nothing(journal)
    assert len(list(home.glob("journal.saved-*"))) == 1
    assert bodies(Journal(home)) == [b"in the database", b"in the log"]


def test_journals_that_each_have_an_entry_of_their_own_are_both_saved(home: Path) -> None:
    both = []
    for body in (b"one", b"another"):
        journal = Journal(home)
        journal.append(EVENT, body)
        delete_all(home)
        both.append(journal)
    for journal in both:
        keeps_nothing(journal)
    assert len(list(home.glob("journal.saved-*"))) == 2
    with pytest.raises(JournalError, match=r"stop the programs of this home and move .* away"):
        Journal(home)


@pytest.mark.parametrize("end", ["close", "fork"])
def test_a_loss_is_noticed_before_what_is_open_is_closed(home: Path, end: str, journal: Journal) -> None:
    journal.append(EVENT, b"kept")
    delete(home)
    if end == "close":
        journal.close()
    else:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    assert bodies(Journal(home)) == [b"kept"]


def test_a_saved_journal_never_takes_the_place_of_another(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = Journal(home)
    first.append(EVENT, b"first")
    delete_all(home)
    second = Journal(home)
    second.append(EVENT, b"second")
    with pytest.raises(JournalError, match="was replaced by another file"):
        first.append(EVENT, b"too late")
    with pytest.raises(JournalError, match=r"stop the programs of this home and move .* away"):
        Journal(home)
    assert bodies(second) == [b"second"]
    second.close()
    aside = home / "aside"
    aside.mkdir()
    for path in files_of(home):
        path.rename(aside / path.name)
    with caplog.at_level(logging.WARNING):
        assert bodies(Journal(home)) == [b"first"]
    assert "replaces it" in caplog.text
    assert bodies(Journal(aside)) == [b"second"]


def test_a_log_without_its_database_is_not_thrown_away(home: Path, journal: Journal) -> None:
    journal.append(EVENT, b"kept")
    journal.close()
    (home / "journal.db").rename(home / "elsewhere")
    with pytest.raises(JournalError, match=r"its log .* is there; restore the database"):
        Journal(home)
    (home / "elsewhere").rename(home / "journal.db")
    assert bodies(Journal(home)) == [b"kept"]


def test_a_process_that_has_only_read_it_notices_within_a_second_and_saves_it_too(home: Path) -> None:
    clock = ManualClock()
    journal = Journal(home, clock=clock)
    journal.append(EVENT, b"kept")
    pid = os.fork()  # everything open is closed first
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    journal.last_seq()
    delete(home)
    clock.move(1.0)
    with pytest.raises(
        JournalError, match=r"was deleted .*; everything that was acknowledged is in .*saved-"
    ):
        journal.last_seq()
    assert bodies(Journal(home)) == [b"kept"]


@pytest.mark.parametrize("name", [locks.RUNNER, locks.COLLECTOR])
def test_no_new_journal_begins_beside_a_live_runner_or_collector_that_has_the_lost_one(
    home: Path, name: str, journal: Journal
) -> None:
    journal.append(EVENT, b"kept")
    held = locks.reserve(home, name)  # and another process signs it
    assert held
    delete(home)
    with pytest.raises(JournalError, match="is missing from a home that had one"):
        Journal(home)
    with pytest.raises(JournalError, match="is missing from a home that had one"):
        Journal.exists(home)
    journal.close()
    assert Journal.exists(home)
    assert bodies(Journal(home)) == [b"kept"]
    held.release()


def test_a_home_that_was_deleted_as_a_whole_is_not_made_again(home: Path, journal: Journal) -> None:
    journal.append(EVENT, b"kept")
    shutil.rmtree(home)
    with pytest.raises(JournalError, match="its whole home is gone"):
        journal.append(EVENT, b"too late")
    journal.close()
    assert not home.exists()


def test_a_runner_ends_loudly_when_its_journal_was_deleted_and_the_next_one_goes_on(
    settings: Settings, home: Path, journal: Journal
) -> None:
    journal.append(EVENT, b"kept")
    agree(journal, settings)
    journal.close()
    command = [sys.executable, "-m", "waybill.transport", str(home)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as runner:
        while Journal(home).meta("runner_pid") != str(runner.pid):
            time.sleep(0.05)
        delete(home)
        _, said = runner.communicate(timeout=30)
    assert runner.returncode != 0
    assert "was deleted while it was open" in said
    assert flush(settings).left == {}
    again = Journal(home)
    assert bodies(again)[0] == b"kept"
    again.close()
