"""The journal through its public door."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import apsw
import pytest
from events import event
from hypothesis import given, strategies as st
from manual_clock import ManualClock
from waiting import at_once

from waybill.transport import Entry, Journal, JournalError, JournalFullError, JournalVersionError, Kind
from waybill.transport.journal.database import ENTRY_BYTES_MAX
from waybill.transport.journal.schema import VERSION
from waybill.transport.mounts import file_system_of

EVENT = Kind.OPENLINEAGE


def bodies(journal: Journal) -> list[bytes]:
    return [entry.body for entry in journal.read(0, limit=1_000_000)]


class CountingSqlite(apsw.VFS):
    """SQLite's own file system, counting what is fsynced."""

    def __init__(self) -> None:
        super().__init__("counting", "unix")
        self.syncs = 0

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return CountingFile(self, name, flags)


class CountingFile(apsw.VFSFile):
    def __init__(
        self, counting: CountingSqlite, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        super().__init__("unix", name, flags)
        self._counting = counting

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._counting.syncs += 1
        super().xSync(flags)


def test_an_entry_comes_back_as_it_was_accepted(journal: Journal) -> None:
    before_ms = time.time_ns() // 1_000_000
    seq = journal.append(EVENT, b'{"a":1}', "edge-7")
    (entry,) = journal.read(0)
    assert entry == Entry(seq, entry.received_ms, EVENT, "edge-7", b'{"a":1}')
    assert before_ms <= entry.received_ms <= time.time_ns() // 1_000_000


def test_a_repeat_of_the_same_bytes_is_kept_once_and_gets_the_first_number(journal: Journal) -> None:
    assert [journal.append(EVENT, body) for body in (b"a", b"b", b"a")] == [1, 2, 1]
    assert journal.append_many([(EVENT, b"c", ""), (EVENT, b"b", ""), (EVENT, b"c", "")]) == [3, 2, 3]
    assert bodies(journal) == [b"a", b"b", b"c"]
    assert journal.append(Kind.PROVENANCE, b"c") == 4, "the same bytes of another kind are another entry"
    assert [journal.mark(b"flush"), journal.mark(b"flush")] == [5, 6], "a mark is never a repeat"


def test_what_need_not_be_durable_at_once_shares_an_fsync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = CountingSqlite()
    clock = ManualClock()
    journal = Journal(tmp_path, vfs="counting", clock=clock)

    def syncs_of(act: Callable[[], object]) -> int:
        before = counting.syncs
        act()
        return counting.syncs - before

    def settle(cursor: int) -> None:
        journal.commit("p", cursor=cursor, put={"row": b"%d" % cursor}, durable=False)

    journal.append(EVENT, b"a")
    assert [syncs_of(lambda: settle(1)), syncs_of(lambda: settle(2))] == [0, 0]
    assert syncs_of(lambda: journal.append(EVENT, b"c", durable=False)) == 0
    assert journal.has_unsynced
    assert syncs_of(lambda: journal.append(EVENT, b"b")) == 1, "an entry is fsynced as ever"
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)  # SQLite has its own
    assert not journal.has_unsynced
    assert journal.sync() is None, "the entry's fsync was for all that came before"
    assert syncs_of(lambda: settle(4)) == 0
    clock.move(20.0)
    assert journal.sync(60.0) == 40.0
    assert synced == []
    assert [journal.sync(), journal.sync()] == [None, None]
    assert len(synced) == 1, "once there is something to be made durable"
    settle(6)
    assert syncs_of(lambda: journal.append(EVENT, b"a")) == 0, "a repeat changes nothing"
    assert len(synced) == 2, "so the log itself is fsynced for what came before"
    journal.append(EVENT, b"a")
    assert journal.sync() is None
    assert len(synced) == 2
    journal.set_meta("a", "b")
    journal.append(EVENT, b"d", durable=False)
    assert syncs_of(lambda: journal.set_meta("a", "b")) == 0, (
        "a row that stays as it is changes nothing either"
    )
    assert (journal.append(EVENT, b"d"), len(synced)) == (journal.last_seq(), 3)
    assert Journal(tmp_path).cursor("p") == 6
    journal.close()


def test_a_repeat_of_what_another_process_has_not_fsynced_is_fsynced_before_it_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, other = Journal(tmp_path), Journal(tmp_path)
    journal.append(EVENT, b"a")
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)  # SQLite has its own
    other.append(EVENT, b"b", durable=False)
    assert (journal.append(EVENT, b"b"), len(synced)) == (2, 1)
    assert (journal.append(EVENT, b"b"), len(synced)) == (2, 1), "once"


def test_one_caller_that_needs_an_fsync_makes_its_whole_group_durable(journal: Journal) -> None:
    at_once(partial(journal.append, EVENT, b"%d" % at, durable=at % 2 == 0) for at in range(8))
    assert len(bodies(journal)) == 8
    journal.append(EVENT, b"last")
    assert not journal.has_unsynced


def test_a_packed_entry_comes_back_as_it_was_accepted_and_is_known_as_a_repeat(tmp_path: Path) -> None:
    bodies = [b"short", b"long " * 10_000, os.urandom(20_000)]
    packing, plain = Journal(tmp_path, packs=True), Journal(tmp_path)
    assert [packing.append(Kind.PROVENANCE, body) for body in bodies] == [1, 2, 3]
    assert [plain.append(Kind.PROVENANCE, body) for body in bodies] == [1, 2, 3]
    assert [entry.body for entry in plain.read(0)] == bodies
    assert [entry.body for entry in plain.read(0, max_bytes=40_000)] == bodies[:1]
    assert packing.size_bytes() < sum(map(len, bodies))
    packing.close()
    plain.close()


Ruin = Callable[[Journal], None]


def damage(change: str) -> Ruin:
    """Change the columns of the second entry."""

    def ruin(journal: Journal) -> None:
        connection = apsw.Connection(str(journal.path))
        connection.execute(f"UPDATE entries SET {change} WHERE seq = 2")  # noqa: S608 - words of our own
        connection.close()

    return ruin


def ruin_a_page(change: Callable[[bytes], bytes]) -> Ruin:
    """Change a page of the file that contains only the body of the second entry, as a failing disk may."""

    def ruin(journal: Journal) -> None:
        content = bytearray(journal.path.read_bytes())
        pages = [at for at in range(0, len(content), 4096) if content.count(b"Q", at, at + 4096) > 4000]
        content[pages[1] : pages[1] + 4096] = change(bytes(content[pages[1] : pages[1] + 4096]))
        journal.path.write_bytes(content)

    return ruin


RUINS = {
    "body of zeros": damage("body = zeroblob(100)"),
    "no body": damage("body = zeroblob(0)"),
    "unknown kind": damage("kind = 7"),
    "no text": damage("system_name = CAST(X'e5646765' AS TEXT)"),
    "no digest": damage("digest = NULL"),
    "page of zeros": ruin_a_page(lambda page: bytes(len(page))),
    "bad pointer": ruin_a_page(lambda page: b"\xff\xff\xff\x7f" + page[4:]),
}
LOST = {"page of zeros", "bad pointer"}
"""With these, nothing of the body can be read."""
SENT = [b"a", b"Q" * 20_000, b"c"]


@pytest.fixture(params=RUINS)
def ruined(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Journal]:
    """A journal whose second entry of five is damaged."""
    journal = Journal(tmp_path)
    journal.append_many((EVENT, body, "s") for body in SENT)
    journal.commit("p", put={"row": b"of it"}, seqs={"row": 2})
    for body in (b"one", b"two"):  # so that the log has nothing of that page any more
        journal.append(EVENT, body)
        journal.checkpoint()
    journal.close()
    RUINS[request.param](journal)
    yield journal
    journal.close()


def test_a_damaged_entry_is_poison_and_hides_no_other(
    ruined: Journal, request: pytest.FixtureRequest
) -> None:
    entries = ruined.read(0)
    assert [entry.body for entry in entries] == [b"a", b"", b"c", b"one", b"two"]
    assert [entry.damage is None for entry in entries] == [True, False, True, True, True]
    assert "check the disk" in str(ruined.read(1, limit=1)[0].damage)
    assert entries[0].received_ms <= entries[1].received_ms <= entries[2].received_ms
    fed = ruined.feed("p", 0)
    assert [entry.body for entry in fed] == [b"a", b"poison", b"c", b"one", b"two"]
    assert [entry.seq for entry in fed if entry.kind is Kind.MARK] == [2]
    (poison,) = ruined.poison.all()
    assert (poison.projection, poison.seq, poison.tries) == ("p", 2, 0)
    assert "check the disk" in poison.reason
    assert ruined.feed("p", 0) == fed
    if request.node.callspec.params["ruined"] in LOST:
        assert ruined.poison.body("p", 2) == b""
        (mark,) = ruined.poison.retry("p", [2])
        assert ruined.feed("p", mark - 1)[0].kind is Kind.MARK, "it is not applied without its bytes"
    assert ruined.poison.counts() == {"p": 1}


def test_what_repeats_a_damaged_entry_is_kept_anew_and_once(ruined: Journal) -> None:
    assert ruined.append_many((EVENT, body, "s") for body in SENT) == [1, 6, 3]
    assert [ruined.append(EVENT, body) for body in SENT] == [1, 6, 3]
    assert ruined.read(5, limit=1)[0].body == SENT[1]
    assert [entry.seq for entry in ruined.read(0) if entry.damage] == [2], "it is no less damaged"


def test_a_damaged_entry_does_not_keep_the_journal_from_being_pruned(ruined: Journal) -> None:
    assert [ruined.prune(4, 2**50, limit=1), ruined.prune(4, 2**50), ruined.prune(4, 2**50)] == [1, 3, 0]
    assert bodies(ruined) == [b"two"]
    oldest = ruined.first()
    assert oldest is not None
    assert oldest.seq == 5
    assert ruined.state("p") == {}
    ruined.close()
    assert bodies(Journal(ruined.home)) == [b"two"], "as everybody else sees it"


def test_an_event_is_decoded_once_for_all_projections(journal: Journal) -> None:
    journal.append_many((EVENT, event("r", "START", number=at), "") for at in range(5))
    first, second = journal.feed("archive", 0), journal.feed("layout", 2)
    assert [entry.seq for entry in second] == [3, 4, 5]
    assert all(one.event is other.event is not None for one, other in zip(first[2:], second, strict=True))
    for limits in ({"limit": 2}, {"max_bytes": 1}, {"max_bytes": 500}):
        assert journal.feed("layout", 0, **limits) == journal.read(0, **limits)
    journal.prune(3, 2**62)
    assert [entry.seq for entry in journal.feed("layout", 0)] == [4, 5]


def test_poison_outlives_its_entry_and_comes_again_in_the_place_of_its_mark(journal: Journal) -> None:
    journal.append_many((EVENT, b"%d" % number, "s") for number in range(3))
    journal.poison.set_aside("p", 2, "it is too much", tries=3)
    journal.commit("p", cursor=3)
    journal.prune(99, 2**50)
    assert journal.poison.body("p", 2) == b"1"
    assert journal.poison.retry("p", [2]) == [4]
    (again,) = journal.feed("p", 3)
    assert (again.seq, again.kind, again.system_name, again.body) == (4, EVENT, "s", b"1")
    (mark,) = journal.feed("another", 3)
    assert (mark.kind, mark.body) == (Kind.MARK, b"retry:p:2")
    journal.poison.set_aside("p", 4, "still", tries=3)
    (poison,) = journal.poison.all()
    assert (poison.seq, poison.reason, poison.tries, poison.retry_seq) == (2, "still", 6, None)
    assert journal.feed("p", 3) == [mark]
    journal.poison.retry("p", [2])
    assert journal.poison.counts() == {"p": 1}
    journal.commit("p", cursor=5)
    assert journal.poison.counts() == {}


def test_threads_and_forks_append_together_without_loss_and_each_gets_its_own_numbers(tmp_path: Path) -> None:
    script = """
import logging, os, sys, threading  # logging's own hooks would run first and hide a race
from pathlib import Path
import apsw
from waybill.transport import Journal, Kind
journals = [Journal(Path(sys.argv[1]) / str(number)) for number in range(4)]
stop = threading.Event()
kept = {}
def appending(thread):
    number = 0
    while not stop.is_set():
        body = b"parent %d %d" % (thread, number)
        kept[body] = journals[0].append(Kind.OPENLINEAGE, body)
        journals[1].append(Kind.OPENLINEAGE, body)
        number += 1
def forking(thread):
    for child in range(5):
        pid = os.fork()
        if pid == 0:
            for number in range(5):
                journals[0].append(Kind.OPENLINEAGE, b"child %d %d %d" % (thread, child, number))
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
threads = [threading.Thread(target=appending, args=(thread,)) for thread in range(3)]
forkers = [threading.Thread(target=forking, args=(thread,)) for thread in range(4)]
for thread in threads + forkers: thread.start()
for thread in forkers: thread.join()
stop.set()
for thread in threads: thread.join()
found = {entry.body: entry.seq for entry in journals[0].read(0, limit=1_000_000)}
assert found.keys() - kept.keys() == {
    b"child %d %d %d" % (thread, child, number)
    for thread in range(4) for child in range(5) for number in range(5)
}
assert kept.items() <= found.items()
assert apsw.Connection(str(journals[0].path)).pragma("integrity_check") == "ok"
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script, tmp_path], check=True, timeout=120)


def test_what_is_submitted_is_answered_with_its_own_numbers_or_its_own_error(journal: Journal) -> None:
    outcomes: dict[int, list[int] | Exception] = {}
    threads: set[str] = set()

    def note(number: int, outcome: list[int] | Exception) -> None:
        outcomes[number] = outcome
        threads.add(threading.current_thread().name)

    for number in range(200):
        name = "\udcff" if number == 100 else ""
        items = [(EVENT, b"%d" % number, name), (EVENT, b"a repeat", "")]
        journal.submit(items, partial(note, number))
    wrong: list[object] = ["no bytes"]
    journal.submit([(EVENT, wrong[0], "")], partial(note, 200))  # type: ignore[list-item]
    journal.append(EVENT, b"appended meanwhile")
    journal.close()
    assert (len(outcomes), threads, journal.committing_s) == (201, {"waybill-commit"}, 0.0)
    assert isinstance(outcomes.pop(100), UnicodeEncodeError)
    assert isinstance(outcomes.pop(200), TypeError)
    kept = {entry.seq: entry.body for entry in journal.read(0)}
    for number, seqs in outcomes.items():
        assert isinstance(seqs, list)
        assert [kept[seq] for seq in seqs] == [b"%d" % number, b"a repeat"]
    assert len(kept) == 199 + 2
    journal.submit([(EVENT, b"after close", "")], partial(note, 300))
    journal.close()
    assert outcomes[300] == [202]


def test_what_the_parent_submitted_is_not_the_childs_and_the_child_submits_too(tmp_path: Path) -> None:
    script = """
import os, sys
from pathlib import Path
from waybill.transport import Journal, Kind
journal = Journal(Path(sys.argv[1]))
told = []
def submit(body):
    journal.submit([(Kind.OPENLINEAGE, body, "")], told.append)
for number in range(90):
    submit(b"parent %d" % number)
    if number % 30 == 0:
        pid = os.fork()
        if pid == 0:
            told.clear()
            submit(b"child %d" % number)
            journal.close()
            assert len(told) == 1, told
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
journal.close()
assert len(told) == 90
found = [entry.body for entry in journal.read(0)]
assert len(found) == len(set(found)) == 93
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script, tmp_path], check=True, timeout=60)


def test_interruptions_of_a_group_commit_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    script = """
import random, signal, sys, threading
from pathlib import Path
from waybill.transport import Journal, Kind
journal = Journal(Path(sys.argv[1]))
kept, wrong = set(), []
def appending(thread):
    for number in range(150):
        body = b"%d %d" % (thread, number)
        try:
            journal.append(Kind.OPENLINEAGE, body)
            kept.add(body)
        except BaseException as error:
            wrong.append(error)
threads = [threading.Thread(target=appending, args=(thread,)) for thread in range(4)]
for thread in threads: thread.start()
def interrupt(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
number = interrupted = 0
while any(thread.is_alive() for thread in threads):
    number += 1
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 1e-3))
        journal.append(Kind.OPENLINEAGE, b"main %d" % number)
        kept.add(b"main %d" % number)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupted += 1
for thread in threads: thread.join()
found = {entry.body for entry in journal.read(0, limit=1_000_000)}
assert not wrong, wrong[0]
assert interrupted
assert kept <= found, sorted(kept - found)[:3]
"""
    subprocess.run([sys.executable, "-c", script, tmp_path], check=True, timeout=120)


def test_a_signal_handler_that_appends_is_kept_or_refused_and_never_waits_for_itself(tmp_path: Path) -> None:
    script = """
import signal, sys
from pathlib import Path
from waybill.transport import Journal, JournalError, Kind
journal = Journal(Path(sys.argv[1]))
kept, refused = set(), 0
def append(body, durable):
    global refused
    try:
        journal.append(Kind.OPENLINEAGE, body, "", durable=durable)
        kept.add(body)
    except JournalError as error:
        assert "signal handler" in str(error), error
        refused += 1
def handle(*_):
    for durable in (True, False):
        append(b"handler %d %d" % (durable, len(kept) + refused), durable)
signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
for number in range(300):
    append(b"power %d" % number, True)
    append(b"process %d" % number, False)
signal.setitimer(signal.ITIMER_REAL, 0)
assert {b"%s %d" % (kind, n) for kind in (b"power", b"process") for n in range(300)} <= kept
assert len(kept) + refused > 600
assert kept == {entry.body for entry in journal.read(0, limit=1_000_000)}
"""
    subprocess.run([sys.executable, "-c", script, tmp_path], check=True, timeout=60)


def test_a_read_gives_at_least_one_entry_and_stops_at_its_limits(journal: Journal) -> None:
    journal.append_many((EVENT, bytes([number]) * 1000, "") for number in range(10))
    assert [entry.seq for entry in journal.read(3, limit=4)] == [4, 5, 6, 7]
    assert [entry.seq for entry in journal.read(0, max_bytes=2500)] == [1, 2]
    assert [entry.seq for entry in journal.read(0, max_bytes=1)] == [1]
    assert journal.read(10) == []


def test_a_cursor_and_its_state_change_together(journal: Journal) -> None:
    journal.append(EVENT, b"a")
    journal.commit("layout", cursor=1, put={"run:a": b"1", "run:b": b"2", "range": b"3"})
    journal.commit("layout", put={"run:c": b"4"}, delete=["run:a"])
    reopened = Journal(journal.home)
    assert reopened.cursor("layout") == 1
    assert reopened.cursor("marquez") == 0
    assert reopened.state("layout", "run:") == {"run:b": b"2", "run:c": b"4"}
    assert reopened.state_get("layout", "range") == b"3"
    assert reopened.state_of("layout", ["run:a", "run:b", 'ra"nge', "range"]) == {
        "run:b": b"2",
        "range": b"3",
    }
    assert reopened.state_of("layout", []) == reopened.state_of("marquez", ["range"]) == {}
    assert reopened.state("marquez") == {}


@given(
    keys=st.dictionaries(
        st.text(st.characters(codec="utf-8", exclude_characters="\0\U0010ffff"), max_size=5),
        st.binary(max_size=5),
        max_size=8,
    ),
    prefix=st.text(st.characters(codec="utf-8", exclude_characters="\0\U0010ffff"), max_size=2),
)
def test_a_prefix_finds_exactly_the_keys_that_begin_with_it(
    keys: dict[str, bytes], prefix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    journal = Journal(tmp_path_factory.getbasetemp() / "prefixes")
    journal.commit("p", put=keys, delete=journal.state("p"))
    journal.commit("p", put=keys)
    assert journal.state("p", prefix) == {key: value for key, value in keys.items() if key.startswith(prefix)}
    journal.commit("p", delete=keys)
    journal.close()


def test_pruning_takes_old_entries_up_to_the_limit_and_keeps_the_newest(journal: Journal) -> None:
    journal.append_many((EVENT, b"%d" % number, "") for number in range(10))
    assert journal.prune(4, received_before_ms=0) == 0
    assert journal.prune(4, received_before_ms=2**50) == 4
    assert journal.prune(99, received_before_ms=2**50, limit=3) == 3
    assert journal.prune(99, received_before_ms=2**50) == 2
    assert [entry.seq for entry in journal.read(0)] == [10]
    assert journal.append(EVENT, b"next") == 11


def test_state_that_is_tied_to_an_entry_goes_with_it_and_other_state_stays(journal: Journal) -> None:
    journal.append_many((EVENT, b"%d" % number, "") for number in range(6))
    rows = {f"row {seq}": b"" for seq in range(1, 7)} | {"range": b""}
    journal.commit("p", put=rows, seqs={f"row {seq}": seq for seq in range(1, 7)})
    journal.commit("p", put={"row 1": b"later"}, seqs={"row 1": 6})
    journal.commit("p", put={"row 2": b"for good"})
    journal.prune(3, received_before_ms=0)
    assert len(journal.state("p")) == 7
    journal.prune(4, received_before_ms=2**50)
    assert sorted(journal.state("p")) == ["range", "row 1", "row 2", "row 5", "row 6"]


def test_a_journal_at_its_largest_size_refuses_and_takes_entries_again_when_there_is_room(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path, max_bytes=2**20, clock=ManualClock(each_reading_s=2.0))
    with pytest.raises(JournalFullError, match="journal_max_bytes = 1048576"):
        for number in range(100):
            journal.append(EVENT, b"%d" % number + bytes(50_000))
    kept = journal.last_seq()
    assert journal.mark(b"flush") == kept + 1
    journal.prune(kept, 2**50)
    assert journal.append(EVENT, b"room again") == kept + 2


def test_an_entry_that_is_too_large_for_sqlite_is_refused(journal: Journal) -> None:
    with pytest.raises(JournalError, match="leave out the largest facet"):
        journal.append(EVENT, bytes(ENTRY_BYTES_MAX + 1))
    assert bodies(journal) == []


MOMENTS = {
    EVENT: b'{"eventType": "COMPLETE", "eventTime": "2026-01-31T12:%02d:%02d.%03dZ", "number": %d}',
    Kind.PROVENANCE: b'[{"did": "a", "completed": 17698%02d%02d%03d00, "number": %d}]',
}


@pytest.mark.parametrize("kind", MOMENTS)
def test_what_happened_at_one_time_changes_few_pages(tmp_path: Path, kind: Kind) -> None:
    def append(first: int, count: int) -> int:
        """Keep so many in one commit; the pages that it writes."""
        before = journal.wal_bytes()
        moments = ((at // 60_000 % 60, at // 1_000 % 60, at % 1_000) for at in range(first, first + count))
        journal.append_many((kind, MOMENTS[kind] % (*moment, first), "") for moment in moments)
        return (journal.wal_bytes() - before) // 4096

    journal = Journal(tmp_path)
    append(0, 20_000)
    # Their own pages, the last page of the index and those above; by hashes alone it was also one page per
    # entry.
    assert append(20_000, 200) < 30
    assert append(20_200, 8) < 8
    # Entries in another order, much later, or without an instant are also kept and recognised.
    late = [(kind, MOMENTS[kind] % (0, 0, at, 7), "") for at in (5, 3, 4)] + [(kind, b"[]", "")]
    assert journal.append_many(late) == list(range(20_209, 20_213))
    assert journal.append_many(reversed(late)) == list(reversed(range(20_209, 20_213)))
    journal.close()


def test_a_journal_of_another_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    Journal(tmp_path).close()
    connection = apsw.Connection(str(tmp_path / "journal.db"))
    connection.pragma("user_version", VERSION + 1)
    connection.close()
    with pytest.raises(JournalVersionError, match=f"version {VERSION + 1}.*use the Waybill that wrote it"):
        Journal(tmp_path)


def another_programs(home: Path) -> None:
    connection = apsw.Connection(str(home / "journal.db"))
    connection.pragma("application_id", 7)
    connection.execute("CREATE TABLE t (a)")
    connection.close()


def no_database(home: Path) -> None:
    (home / "journal.db").write_bytes(b"not a database, but long enough to look at" * 100)


def no_folder(home: Path) -> None:
    home.rmdir()
    home.parent.rmdir()
    home.parent.touch()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (another_programs, "another program's database"),
        (no_database, "damaged or is no journal"),
        (no_folder, "set another one"),
    ],
)
def test_what_is_no_home_is_refused(tmp_path: Path, make: Callable[[Path], None], says: str) -> None:
    home = tmp_path / "folder" / "home"
    home.mkdir(parents=True)
    make(home)
    with pytest.raises(JournalError, match=says):
        Journal(home)


def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if Path("/proc/self/mounts").exists():  # this kernel lists its mounts
        assert file_system_of(tmp_path)
        assert file_system_of(Path("/proc")) == "proc"
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/x / ext4 rw 0 0\nserver:/export {tmp_path} nfs4 rw 0 0\n")
    monkeypatch.setattr("waybill.transport.mounts._MOUNTS", mounts)
    with pytest.raises(JournalError, match="network file system \\(nfs4\\)"):
        Journal(tmp_path / "above" / "home")
    assert not (tmp_path / "above").exists(), "a folder was made before its place was checked"


def test_a_journal_opens_while_another_process_moves_its_wal(tmp_path: Path) -> None:
    first = Journal(tmp_path)
    first.append(EVENT, b"a")
    path = str(first.path)
    reader, checkpointer = apsw.Connection(path), apsw.Connection(path)
    checkpointer.set_busy_timeout(60_000)
    reader.execute("BEGIN")
    for connection in (reader, checkpointer):
        assert connection.execute("SELECT count(*) FROM entries").get == 1
    first.append(EVENT, b"b")
    # It waits for the reader, and meanwhile keeps everybody else from a checkpoint.
    waiting = threading.Thread(
        target=checkpointer.wal_checkpoint, kwargs={"mode": apsw.SQLITE_CHECKPOINT_TRUNCATE}
    )
    waiting.start()
    time.sleep(0.2)
    assert waiting.is_alive()
    assert bodies(Journal(tmp_path)) == [b"a", b"b"]
    reader.execute("COMMIT")
    waiting.join()


DESCRIPTORS = Path("/proc/self/fd")
LISTS_DESCRIPTORS = pytest.mark.skipif(
    not DESCRIPTORS.is_dir(), reason="descriptors are counted as Linux lists them"
)


@LISTS_DESCRIPTORS
def test_a_journal_that_nobody_closes_leaves_no_descriptor_behind(tmp_path: Path) -> None:
    Journal(tmp_path).append(EVENT, b"first")
    gc.collect()
    before = len(list(DESCRIPTORS.iterdir()))
    for number in range(20):
        Journal(tmp_path).append(EVENT, b"%d" % number)
    gc.collect()
    assert len(list(DESCRIPTORS.iterdir())) <= before


@LISTS_DESCRIPTORS
def test_a_closed_journal_opens_anew_and_is_closed_again(tmp_path: Path) -> None:
    before = set(DESCRIPTORS.iterdir())
    journal = Journal(tmp_path)
    for number in range(3):
        journal.append(EVENT, b"%d" % number)
        journal.read(0)
        journal.close()
        assert set(DESCRIPTORS.iterdir()) <= before
    assert journal.last_seq() == 3
    journal.close()
