"""The spool: what it keeps, and what happens when its process dies."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from waybill.transport import Journal, JournalError, JournalFullError, Kind, Settings, flush
from waybill.transport.journal import Spool, adopt, damaged_spools
from waybill.transport.journal.spool import SYNC_WITHIN_S
from waybill.transport.runner import Runner

EVENT = Kind.OPENLINEAGE
KILLED = """
import os, signal, sys
from pathlib import Path
from waybill.transport import Journal, Kind
from waybill.transport.journal import Spool
spool = Spool(Journal(Path(sys.argv[1]))).open()
for number in range(int(sys.argv[2])):
    spool.append(Kind.OPENLINEAGE, b"event %d" % number, "edge")
os.kill(os.getpid(), signal.SIGKILL)
"""


def bodies(home: Path) -> list[bytes]:
    return [entry.body for entry in Journal(home).read(0, limit=1_000_000)]


def left(home: Path) -> list[Path]:
    return list((home / "spool").iterdir())


def kill_after(home: Path, count: int) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, home, str(count)], check=False)
    assert done.returncode == -signal.SIGKILL


def test_an_entry_is_synced_within_its_time(tmp_path: Path) -> None:
    spool = Spool(Journal(tmp_path)).open()
    waits_s = []
    for number in range(20):
        spool.append(EVENT, b"%d" % number, "")
        start_s = time.monotonic()
        while spool.unsynced:
            time.sleep(0.001)
        waits_s.append(time.monotonic() - start_s)
    assert sorted(waits_s)[10] < SYNC_WITHIN_S
    spool.close()
    assert bodies(tmp_path) == [b"%d" % number for number in range(20)]


def test_what_was_appended_before_a_kill_is_adopted_in_order_and_the_files_go(tmp_path: Path) -> None:
    kill_after(tmp_path, 2000)
    journal = Journal(tmp_path)
    adopt(journal)
    assert bodies(tmp_path) == [b"event %d" % number for number in range(2000)]
    assert journal.read(0)[0].system_name == "edge"
    assert left(tmp_path) == []


def test_a_flush_and_a_new_spool_adopt(tmp_path: Path) -> None:
    kill_after(tmp_path / "a", 3)
    flush(Settings.load({"home": tmp_path / "a"}, env={}, cwd=tmp_path))
    assert bodies(tmp_path / "a")[:3] == [b"event 0", b"event 1", b"event 2"]
    kill_after(tmp_path / "b", 3)
    Spool(Journal(tmp_path / "b")).open()
    assert bodies(tmp_path / "b") == [b"event 0", b"event 1", b"event 2"]


def test_a_living_processes_spool_is_left_to_it(tmp_path: Path) -> None:
    spool = Spool(Journal(tmp_path)).open()
    spool.append(EVENT, b"a", "")
    assert adopt(Journal(tmp_path)) == 0
    assert adopt(Journal(tmp_path), living=True) == 1
    assert bodies(tmp_path) == [b"a"]
    spool.append(EVENT, b"b", "")
    spool.close()
    assert bodies(tmp_path) == [b"a", b"b"]
    assert left(tmp_path) == []


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_torn_last_record_is_dropped_and_those_before_it_are_kept(tmp_path: Path, cut: int) -> None:
    kill_after(tmp_path, 1)
    journal = Journal(tmp_path)
    (file,) = (path for path in left(tmp_path) if path.stat().st_size)
    record = file.read_bytes()
    file.write_bytes(record + record[:-cut])
    assert adopt(journal) == 1
    assert bodies(tmp_path) == [b"event 0"]


def flip(file: Path, text: bytes, ahead: int = 0) -> None:
    """Change a bit of the byte at this distance before a text."""
    content = bytearray(file.read_bytes())
    content[content.index(text) - ahead] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("ahead", [0, 4, 6, 7, 10, 14])
def test_a_damaged_record_costs_no_other_and_its_segment_is_kept_and_named(
    tmp_path: Path, ahead: int, caplog: pytest.LogCaptureFixture
) -> None:
    kill_after(tmp_path, 10)
    (segment,) = left(tmp_path)
    flip(segment, b"event 3", ahead)
    damaged = segment.read_bytes()
    journal = Journal(tmp_path)
    assert adopt(journal) == 9
    assert bodies(tmp_path) == [b"event %d" % number for number in range(10) if number != 3]
    (kept,) = damaged_spools(tmp_path)
    assert (kept.name, kept.read_bytes()) == (f"{segment.name}.damaged", damaged)
    assert f"{kept} is damaged" in caplog.text
    assert adopt(journal) == 0
    kept.unlink()
    assert damaged_spools(tmp_path) == []


def test_a_last_record_that_is_all_there_and_damaged_is_told_too(tmp_path: Path) -> None:
    kill_after(tmp_path, 10)
    (segment,) = left(tmp_path)
    flip(segment, b"event 9")
    adopt(Journal(tmp_path))
    assert len(bodies(tmp_path)) == 9
    assert len(damaged_spools(tmp_path)) == 1


@pytest.mark.parametrize("look", [lambda _: None, Spool.sync], ids=["append", "sync"])
def test_a_segment_that_is_deleted_while_it_is_written_loses_nothing(
    tmp_path: Path, look: Callable[[Spool], None]
) -> None:
    spool = Spool(Journal(tmp_path)).open()
    for body in (b"a", b"b"):
        spool.append(EVENT, body, "")
    for segment in left(tmp_path):
        segment.unlink()
    look(spool)
    spool.append(EVENT, b"c", "")
    adopt(Journal(tmp_path), living=True)
    assert bodies(tmp_path) == [b"a", b"b", b"c"], "whoever else adopts finds them"
    shutil.rmtree(tmp_path / "spool")
    spool.append(EVENT, b"d", "")
    spool.close()
    assert bodies(tmp_path) == [b"a", b"b", b"c", b"d"]
    assert left(tmp_path) == []


def test_a_spool_whose_home_is_deleted_takes_nothing_more_and_makes_no_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    spool = Spool(Journal(home), segment_s=60).open()
    spool.append(EVENT, b"a", "")
    shutil.rmtree(home)
    for _ in range(2):
        with pytest.raises(JournalError):
            spool.append(EVENT, b"b", "")
    assert not home.exists()


def test_adopting_the_same_entries_again_changes_nothing(tmp_path: Path) -> None:
    kill_after(tmp_path, 5)
    copies = {path: path.read_bytes() for path in left(tmp_path)}
    journal = Journal(tmp_path)
    adopt(journal)
    for path, content in copies.items():
        path.write_bytes(content)
    adopt(journal)
    assert bodies(tmp_path) == [b"event %d" % number for number in range(5)]


def test_threads_share_a_spool(tmp_path: Path) -> None:
    spool = Spool(Journal(tmp_path)).open()

    def append(thread: int) -> None:
        for number in range(300):
            spool.append(EVENT, b"%d-%d" % (thread, number), "")

    threads = [threading.Thread(target=append, args=(thread,)) for thread in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spool.close()
    found = bodies(tmp_path)
    assert sorted(found) == sorted(b"%d-%d" % (t, n) for t in range(6) for n in range(300))
    assert [body for body in found if body.startswith(b"3-")] == [b"3-%d" % number for number in range(300)]


def test_both_sides_of_a_fork_go_on(tmp_path: Path) -> None:
    spool = Spool(Journal(tmp_path)).open()
    spool.append(EVENT, b"before", "")
    pid = os.fork()
    if pid == 0:
        spool.append(EVENT, b"child", "")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    spool.append(EVENT, b"parent", "")
    spool.close()
    adopt(Journal(tmp_path))
    assert sorted(bodies(tmp_path)) == [b"before", b"child", b"parent"]
    assert left(tmp_path) == []


def test_a_normal_exit_leaves_no_spool(tmp_path: Path) -> None:
    script = KILLED.replace("os.kill(os.getpid(), signal.SIGKILL)", "")
    subprocess.run([sys.executable, "-c", script, tmp_path, "10"], check=True)
    assert len(bodies(tmp_path)) == 10
    assert left(tmp_path) == []


def test_an_entry_that_does_not_fit_on_the_disk_is_refused_whole_and_harms_no_other(tmp_path: Path) -> None:
    spool = Spool(Journal(tmp_path)).open()
    spool.append(EVENT, b"before", "")
    spool.sync()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
        with pytest.raises(JournalFullError, match="free space there"):
            spool.append(EVENT, bytes(20_000), "")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    spool.append(EVENT, b"after", "")
    spool.close()
    assert bodies(tmp_path) == [b"before", b"after"]


def test_a_journal_that_is_full_is_heard_of_and_what_waits_is_taken_when_there_is_room(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path, max_bytes=2**20, clock=count(step=2.0).__next__)
    spool = Spool(journal).open()
    with pytest.raises(JournalFullError):
        for number in range(100):
            journal.append(EVENT, b"%d" % number + bytes(50_000))
    spool.append(EVENT, b"waits", "")
    with pytest.raises(JournalFullError, match="journal_max_bytes"):
        spool.close()
    assert len(left(tmp_path)) == 1
    journal.prune(journal.last_seq(), 2**50)
    spool.close()
    assert bodies(tmp_path)[-1] == b"waits"
    assert left(tmp_path) == []


def test_an_old_segment_is_closed_so_that_a_runner_can_adopt_it(tmp_path: Path) -> None:
    spool = Spool(Journal(tmp_path)).open()
    spool.append(EVENT, b"a", "")
    journal = Journal(tmp_path)
    deadline_s = time.monotonic() + 10
    while not adopt(journal):
        assert time.monotonic() < deadline_s, "the segment is never closed"
        time.sleep(0.02)
    spool.append(EVENT, b"b", "")
    spool.close()
    assert bodies(tmp_path) == [b"a", b"b"]


def test_a_pipeline_that_nobody_adopts_from_does_it_itself_in_time(tmp_path: Path) -> None:
    spool = Spool(Journal(tmp_path), segment_bytes=1_000, adopt_every_bytes=10_000).open()
    for number in range(100):
        spool.append(EVENT, b"%d" % number + bytes(1000), "")
        if number % 10 == 0:
            spool.sync()
    assert len(bodies(tmp_path)) > 50
    spool.close()
    assert len(bodies(tmp_path)) == 100


def test_what_could_not_be_synced_is_left_to_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(Journal(tmp_path)).open()
    spool.append(EVENT, b"before", "")
    spool.sync()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", _fails)
        with pytest.raises(JournalError, match="cannot be synced"):
            for _ in range(100):  # the thread may have been first
                spool.append(EVENT, b"a", "")
                spool.sync()
    assert adopt(Journal(tmp_path)) > 0
    spool.append(EVENT, b"b", "")
    spool.close()
    assert bodies(tmp_path) == [b"before", b"a", b"b"]


def _fails(_descriptor: int) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_runner_does_not_end_while_a_spool_has_entries(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    spool = Spool(Journal(tmp_path)).open()
    Runner(journal, Settings.load({"home": tmp_path}, env={}, cwd=tmp_path)).run(
        idle_s=0.0, until=_once(lambda: spool.append(EVENT, b"late", ""))
    )
    assert b"late" in bodies(tmp_path)


def _once(do: Callable[[], None]) -> Callable[[], bool]:
    left = [do]

    def until() -> bool:
        if left:
            left.pop()()
        return False

    return until


def test_an_entry_is_synced_at_once_where_no_thread_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    spool = Spool(Journal(tmp_path)).open()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for body in (b"a", b"b"):
        spool.append(EVENT, body, "")
        assert not spool.unsynced
    monkeypatch.undo()
    spool.close()
    assert bodies(tmp_path) == [b"a", b"b"]
