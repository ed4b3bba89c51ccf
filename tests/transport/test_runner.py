"""The runner, its lease and the flush, with a third party's projection."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from forking import in_fork
from manual_clock import ManualClock
from waiting import at_once, wait_until

from waybill.transport import Journal, JournalError, JournalFullError, Kind, Settings, flush, locks as leases
from waybill.transport.__main__ import main as run_home
from waybill.transport.config import agree, agreed, change
from waybill.transport.home import Home
from waybill.transport.journal import NEARLY_FULL
from waybill.transport.runner import Progress, Runner, Supervisor, note_published, progress_of, statuses
from waybill.transport.runner.projection import published
from waybill.transport.runner.runner import ProjectionStatus


def settings_of(home: Path, **given: object) -> Settings:
    return Settings.load({"home": home, **given}, env={}, cwd=home.parent)


def leave_only_copy(copy_folder: Path) -> None:
    """Remove the projection that cannot be loaded."""
    (copy_folder.parent / "site/third_party-1.0.dist-info/entry_points.txt").write_text(
        "[waybill.projections]\ncopy = third_party:open_copy\n"
    )


def copied(folder: Path) -> list[bytes]:
    return (folder / "copied").read_bytes().splitlines() if (folder / "copied").exists() else []


def test_what_became_of_an_entry_is_told_by_its_projection_and_otherwise_by_the_cursor(
    copy_folder: Path, journal: Journal
) -> None:
    journal.append_many((Kind.OPENLINEAGE, b"%d" % number, "") for number in range(3))
    (copy_folder / "refused").write_text("2")
    for name in ("copy", "another"):
        journal.commit(name, cursor=2)
    told = {name: [progress_of(journal, name, seq) for seq in (1, 2, 3)] for name in ("copy", "another")}
    assert told == {
        "copy": [Progress.DONE, Progress.REFUSED, Progress.WAITING],
        "another": [Progress.DONE, Progress.DONE, Progress.WAITING],
    }
    assert progress_of(journal, "new", 1) is Progress.WAITING


def test_what_the_last_sixteen_flushes_published_is_kept(journal: Journal) -> None:
    for seq in range(1, 21):
        put, delete = note_published(journal, "p", seq, {f"{seq}.parquet", "a.parquet"})
        journal.commit("p", put=put, delete=delete)
    assert published(journal, "p") == {seq: [f"{seq}.parquet", "a.parquet"] for seq in range(5, 21)}


def test_a_flush_without_a_runner_works_the_projections_itself(
    copy_folder: Path, journal: Journal, home: Path
) -> None:
    journal.append_many((Kind.OPENLINEAGE, b"%d" % number, "") for number in range(20))
    seen: list[tuple[int, int, list[str]]] = []

    (copy_folder / "slow").touch()

    def show(done: int, total: int, behind: Sequence[str]) -> None:
        seen.append((done, total, list(behind)))
        (copy_folder / "slow").unlink(missing_ok=True)

    report = flush(settings_of(home), on_progress=show)
    assert copied(copy_folder) == [b"%d" % number for number in range(20)]
    assert report.files == ("copied",)
    assert "copy" not in report.left
    assert (seen[0][:2], "copy" in seen[0][2]) == ((0, 21), True)
    assert seen[-1] == (21, 21, [])
    assert not leases.is_held(home)


def test_a_flush_whose_time_is_up_before_a_runner_has_begun_does_not_say_that_all_is_done(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    Journal(home).append(Kind.OPENLINEAGE, b"a")
    held = leases.take(home)
    assert held
    report = flush(settings_of(home), timeout_s=0.1)
    held.release()
    assert (report.left, list(report.problems)) == ({"runner": 1}, ["runner"])


def test_a_projection_that_cannot_be_loaded_is_reported_and_stops_no_other(
    tmp_path: Path, copy_folder: Path
) -> None:
    Journal(tmp_path / "home").append(Kind.OPENLINEAGE, b"a")
    report = flush(settings_of(tmp_path / "home"))
    assert "third_party:no_such_function cannot be loaded" in report.problems["broken"]
    assert copied(copy_folder) == [b"a"]


def test_a_flush_ends_when_what_is_left_is_held_up_and_says_why(tmp_path: Path, copy_folder: Path) -> None:
    Journal(tmp_path / "home").append(Kind.OPENLINEAGE, b"a")
    (copy_folder / "down").touch()
    report = flush(settings_of(tmp_path / "home"))
    assert report.problems["copy"] == "the backend is down; start it"
    assert report.left["copy"] == 1
    (copy_folder / "down").unlink()
    report = flush(settings_of(tmp_path / "home"))
    assert "copy" not in report.problems
    assert copied(copy_folder) == [b"a"]


def test_a_flush_reports_no_problem_that_is_over(
    tmp_path: Path, copy_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, is_full, stopping = tmp_path / "home", threading.Event(), threading.Event()
    journal, settings = Journal(home), settings_of(home)
    commit = Journal.commit

    def commit_if_there_is_room(self: Journal, owner: str, **changes: Any) -> None:  # noqa: ANN401 - any change
        if owner == "runner" and is_full.is_set():
            raise JournalError("the disk is full; free space there")
        commit(self, owner, **changes)

    monkeypatch.setattr(Journal, "commit", commit_if_there_is_room)
    (copy_folder / "down").touch()
    journal.append(Kind.OPENLINEAGE, b"a")
    agree(journal, settings)
    lease = leases.take(home)
    assert lease
    runner = Runner(journal, settings)
    thread = threading.Thread(target=runner.run, kwargs={"idle_s": 600, "until": stopping.is_set})
    thread.start()
    try:
        wait_until(lambda: statuses(journal).get("copy", ProjectionStatus()).problem is not None)
        is_full.set()
        (copy_folder / "down").unlink()
        wait_until(lambda: copied(copy_folder) == [b"a"])
        is_full.clear()
        assert "copy" not in flush(settings, timeout_s=30).problems
        wait_until(lambda: statuses(journal)["copy"].problem is None)
    finally:
        stopping.set()
        thread.join()
        lease.release()
        journal.close()


def test_supervisors_start_one_runner_and_another_when_it_is_killed(
    copy_folder: Path, end_runner: Callable[[Path], None], journal: Journal, home: Path
) -> None:
    supervisors = [Supervisor.open(journal, settings_of(home), look_every_s=0.0) for _ in range(3)]
    journal.append(Kind.OPENLINEAGE, b"before")
    wait_until(lambda: copied(copy_folder) == [b"before"])
    first = leases.holder(home)
    assert first
    assert first != os.getpid()
    assert flush(settings_of(home)).files == ("copied",)
    assert leases.holder(home) == first
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not leases.is_held(home))
    journal.append(Kind.OPENLINEAGE, b"after")

    def replaced() -> bool:
        for supervisor in supervisors:
            supervisor.ensure_runner()
        return copied(copy_folder) == [b"before", b"after"]

    wait_until(replaced)
    end_runner(home)
    assert (copy_folder / "finished").exists()


def test_a_runner_ends_by_itself_when_nothing_is_left(
    copy_folder: Path, journal: Journal, home: Path
) -> None:
    agree(journal, settings_of(home))
    journal.append(Kind.OPENLINEAGE, b"a")
    assert in_fork(lambda: run_home(home, idle_s=0.3)) == 0
    assert copied(copy_folder) == [b"a"]
    assert (copy_folder / "finished").exists()


def test_no_runner_is_started_where_something_else_does_the_work(tmp_path: Path) -> None:
    home = tmp_path / "home"
    Supervisor.open(Journal(home), settings_of(home, runner="none")).ensure_runner()
    assert not leases.is_held(home)


def test_only_one_lease_is_given(tmp_path: Path) -> None:
    held = leases.take(tmp_path)
    assert held
    assert leases.take(tmp_path) is None
    assert leases.holder(tmp_path) == os.getpid()
    held.release()
    assert leases.holder(tmp_path) is None
    with (tmp_path / "runner.lock").open() as another_who_looks:
        fcntl.flock(another_who_looks, fcntl.LOCK_SH)
        assert not leases.is_held(tmp_path)


def test_of_emitters_that_start_at_once_and_disagree_all_follow_the_same_one(
    tmp_path: Path, journal: Journal, home: Path
) -> None:
    together = threading.Barrier(4)
    followed: list[Path] = []

    def emitter(root: Path) -> None:
        settings = settings_of(home, root=root, runner="none")
        together.wait()
        followed.append(Supervisor.open(journal, settings).settings.root)

    at_once(partial(emitter, tmp_path / name) for name in "abcd")
    assert len(followed) == 4
    assert len(set(followed)) == 1


def test_a_lease_that_was_handed_over_is_that_of_the_child_alone(tmp_path: Path) -> None:
    held = leases.reserve(tmp_path)
    assert held
    waits = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    child = subprocess.Popen(waits, stdin=subprocess.PIPE, pass_fds=(held.descriptor,))
    held.hand_over()
    held.release()
    assert leases.is_held(tmp_path)
    child.communicate()
    assert not leases.is_held(tmp_path)


def test_an_emitter_warns_once_that_another_has_changed_the_settings_since(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, journal: Journal, home: Path
) -> None:
    supervisor = Supervisor(
        journal, agree(journal, settings_of(home, root=tmp_path / "mine")), look_every_s=0.0
    )
    change(journal, settings_of(home, root=tmp_path / "theirs"))
    held = leases.take(home)
    assert held
    for _ in range(2):
        supervisor.ensure_runner()
    held.release()
    (warning,) = [
        record.message for record in caplog.records if "to change the agreed settings" in record.message
    ]
    assert "mine" in warning
    assert "theirs" in warning


def test_the_home_has_the_settings_that_a_flush_works_by_even_if_another_emitter_came_before(
    copy_folder: Path, monkeypatch: pytest.MonkeyPatch, journal: Journal, home: Path
) -> None:
    take = leases.take

    def late(of: Path) -> leases.Lease | None:
        agree(journal, settings_of(home, journal_max_bytes="3MiB"))
        return take(of)

    monkeypatch.setattr(leases, "take", late)
    flush(settings_of(home, journal_max_bytes="2MiB"))
    assert json.loads((copy_folder / "works by").read_text())[3] == 2 * 2**20
    assert agreed(journal)["journal_max_bytes"] == 2 * 2**20


def test_a_program_that_ends_before_its_runner_is_not_warned_of_that(
    tmp_path: Path, end_runner: Callable[[Path], None]
) -> None:
    home = tmp_path / "home"
    script = (
        "import sys; from waybill.transport import Settings, Tracker\n"
        "with Tracker(settings=Settings.load({'home': sys.argv[1]})) as tracker: pass"
    )
    command = [sys.executable, "-X", "dev", "-c", script, str(home)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "ResourceWarning" not in done.stderr
    end_runner(home)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are listed as Linux does")
def test_runners_that_have_ended_leave_no_zombies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def children() -> list[bool]:
        """Of each child of this process, whether it is a zombie."""
        stats = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it ended meanwhile
                stats.append(path.read_text().rpartition(")")[2].split()[:2])
        return [state == "Z" for state, parent in stats if parent == str(os.getpid())]

    monkeypatch.setattr("waybill.transport.runner.supervisor._COMMAND", ("-c", "pass"))  # it ends at once
    before = children()
    for name in "abc":
        Supervisor.open(Journal(tmp_path / name), settings_of(tmp_path / name))
        wait_until(lambda: children().count(False) <= before.count(False))
    assert children().count(True) <= before.count(True) + 2, "the last one, and the one before it"


def test_a_runner_does_nothing_in_a_home_that_is_gone_or_where_nothing_is_agreed_yet(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    assert in_fork(lambda: run_home(home)) == 0
    assert not Journal.exists(home)
    journal = Journal(home)
    journal.append(Kind.OPENLINEAGE, b"kept")
    assert in_fork(lambda: run_home(home)) == 0
    assert (journal.meta("runner_pid"), journal.meta("root")) == (None, None)
    assert not (home / "waybill-root.json").exists()


def test_a_released_lease_is_free_although_a_child_forked_meanwhile_has_its_descriptor(
    tmp_path: Path,
) -> None:
    held = leases.take(tmp_path)
    assert held
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    held.release()
    assert not leases.is_held(tmp_path)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_threads_that_find_no_runner_start_one_that_works_by_what_was_agreed_whatever_its_environment_says(
    tmp_path: Path, copy_folder: Path, monkeypatch: pytest.MonkeyPatch, end_runner: Callable[[Path], None]
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("WAYBILL_ROOT", str(tmp_path / "environment"))
    monkeypatch.setenv("MARQUEZ_URL", "http://environment:1")
    given = {"root": tmp_path / "given", "archive_enabled": False, "journal_max_bytes": "2MiB"}
    journal = Journal(home)
    supervisor = Supervisor(journal, agree(journal, settings_of(home, **given)))
    started: list[int] = []
    popen = subprocess.Popen

    def counting(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - whatever Popen takes and gives
        started.append(1)
        return popen(*args, **options)

    monkeypatch.setattr(subprocess, "Popen", counting)
    at_once(supervisor.ensure_runner for _ in range(20))
    assert len(started) == 1
    assert leases.is_held(home), "a runner that is on its way up is alive already"
    wait_until((copy_folder / "works by").exists)
    works_by = json.loads((copy_folder / "works by").read_text())
    assert works_by == [str(tmp_path / "given"), None, False, 2 * 2**20]
    end_runner(home)
    assert leases.holder(home) is None


def test_a_lease_that_cannot_be_looked_at_does_not_disturb_the_pipeline(tmp_path: Path) -> None:
    home = tmp_path / "home"
    supervisor = Supervisor(Journal(home), settings_of(home))
    (home / "runner.lock").symlink_to("runner.lock")
    supervisor.ensure_runner()
    assert not (home / "runner.log").exists()


def test_old_entries_go_only_when_a_projection_keeps_what_they_said(
    copy_folder: Path, monkeypatch: pytest.MonkeyPatch, journal: Journal, home: Path
) -> None:
    long_ago_ns = time.time_ns() - 30 * 86_400 * 10**9
    with monkeypatch.context() as patched:
        patched.setattr(time, "time_ns", lambda: long_ago_ns)
        journal.append_many((Kind.OPENLINEAGE, b"%d" % number, "") for number in range(5))
    monkeypatch.delenv("WAYBILL_TEST_FOLDER")
    nothing_stored = settings_of(home, archive_enabled=False)
    flush(nothing_stored)
    assert len(journal.read(0)) == 6
    monkeypatch.setenv("WAYBILL_TEST_FOLDER", str(copy_folder))
    flush(nothing_stored)
    assert len(journal.read(0)) == 7, "a projection that cannot be loaded may want them yet"
    leave_only_copy(copy_folder)

    def pruned() -> bool:
        flush(nothing_stored)
        return all(entry.kind is Kind.MARK for entry in journal.read(0))

    wait_until(pruned)
    assert copied(copy_folder) == [b"%d" % number for number in range(5)]
    assert statuses(journal)["copy"].problem is None


def test_an_interrupted_flush_leaves_no_worker_behind(tmp_path: Path, copy_folder: Path) -> None:
    home = tmp_path / "home"
    Journal(home).append(Kind.OPENLINEAGE, b"a")

    def interrupt(_done: int, _total: int, _behind: Sequence[str]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        flush(settings_of(home), on_progress=interrupt)
    assert not leases.is_held(home)
    assert not [thread.name for thread in threading.enumerate() if thread.name == "waybill-copy"]
    Journal(home).append(Kind.OPENLINEAGE, b"b")
    flush(settings_of(home))
    assert copied(copy_folder) == [b"a", b"b"]


def test_a_projection_that_backs_off_is_not_called_for_entries_that_come(
    copy_folder: Path, journal: Journal, home: Path
) -> None:
    (copy_folder / "down").write_text("1000")
    left = iter(range(6))

    def until() -> bool:
        journal.append(Kind.OPENLINEAGE, b"%d" % journal.last_seq())
        return next(left, None) is None

    Runner(journal, settings_of(home)).run(until=until)
    assert (copy_folder / "asked").read_text().split() == ["asked"]


def test_a_projection_that_gathers_is_called_for_a_mark_and_not_for_each_entry(
    copy_folder: Path, journal: Journal, home: Path
) -> None:
    (copy_folder / "gathers").touch()
    sent = [b"%d" % number for number in range(6)]
    left = iter(sent)

    def until() -> bool:
        if (body := next(left, None)) is not None:
            journal.append(Kind.OPENLINEAGE, body)
        elif not journal.last_mark():
            journal.mark(b"flush")
        return copied(copy_folder) == sent

    Runner(journal, settings_of(home)).run(until=until)
    assert len((copy_folder / "asked").read_text().split()) <= 2


def test_a_projection_that_has_nothing_to_do_and_asks_again_at_once_is_counted(
    copy_folder: Path, empty_turns: list[str], journal: Journal, home: Path
) -> None:
    (copy_folder / "hasty").touch()
    deadline_s = time.monotonic() + 20
    turns: list[int] = []

    def until() -> bool:
        turns.append(statuses(journal).get("copy", ProjectionStatus()).empty_turns)
        return turns[-1] > 1 or time.monotonic() > deadline_s

    Runner(journal, settings_of(home)).run(until=until)
    assert turns[-1] > 1
    assert empty_turns == ["projection copy has nothing to do and asks again at once"]
    empty_turns.clear()


def test_a_projection_that_fails_to_count_what_is_pending_goes_on(
    copy_folder: Path, journal: Journal, home: Path
) -> None:
    (copy_folder / "no count").touch()
    runner = Runner(journal, settings_of(home))
    runner.open()
    assert runner.step("copy").problem == "RuntimeError: cannot count"
    journal.append(Kind.OPENLINEAGE, b"later")
    assert runner.step("copy").problem is None
    assert copied(copy_folder) == [b"later"]
    runner.close()


def test_a_runner_ends_when_its_home_no_longer_exists(tmp_path: Path, journal: Journal, home: Path) -> None:
    looks = iter(range(600))

    def until() -> bool:
        if home.exists():
            home.rename(tmp_path / "gone")
        return next(looks, None) is None

    Runner(journal, settings_of(home, archive_enabled=False)).run(until=until)
    assert next(looks) == 1
    assert not home.exists()


def test_a_flush_does_not_take_an_earlier_runners_word_for_a_live_ones(
    copy_folder: Path, journal: Journal, home: Path
) -> None:
    (copy_folder / "down").touch()
    assert in_fork(lambda: flush(settings_of(home))) == 0
    held = leases.take(home)
    assert held
    started = time.monotonic()
    report = flush(settings_of(home), timeout_s=0.5)
    assert time.monotonic() - started >= 0.5
    assert report.left["copy"] == 0, "only the marks of two flushes wait"
    held.release()
    assert journal.last_seq() == 2


@pytest.mark.parametrize("note", ["stores all", "stores nothing"])
def test_a_full_journal_lets_go_of_what_every_projection_has_and_takes_entries_again(
    tmp_path: Path, copy_folder: Path, note: str
) -> None:
    leave_only_copy(copy_folder)
    (copy_folder / note).touch()
    given = settings_of(tmp_path / "home", journal_max_bytes="1MiB", runner="none", archive_enabled=False)
    clock = ManualClock(each_reading_s=2.0, moves_itself=True)
    journal = Journal(given.home, max_bytes=given.journal_max_bytes, clock=clock)
    home = Home(journal, Supervisor(journal, given))
    numbers = itertools.count()

    def emit() -> None:
        home.append(Kind.OPENLINEAGE, b"%d" % next(numbers) + bytes(50_000), "")

    def fill() -> None:
        with pytest.raises(JournalFullError, match="entries that all of them have make room"):
            while True:
                emit()

    (copy_folder / "down").write_text("0.05")
    fill()
    looks = iter(range(5))
    Runner(home.journal, home.settings).run(until=lambda: next(looks, None) is None)
    with pytest.raises(JournalFullError):
        emit()
    (copy_folder / "down").unlink()
    Runner(home.journal, home.settings).run(until=lambda: home.journal.filled < NEARLY_FULL)
    emit()
    assert home.journal.first() is not None
    home.close()


def test_a_full_journal_that_no_projection_works_keeps_everything_and_says_what_helps(tmp_path: Path) -> None:
    home = Home.open(
        settings_of(tmp_path / "home", journal_max_bytes="1MiB", runner="none", archive_enabled=False)
    )

    def fill() -> None:
        with pytest.raises(JournalFullError, match="if it has no projection, turn one on"):
            for number in itertools.count():
                home.append(Kind.OPENLINEAGE, b"%d" % number + bytes(50_000), "")

    fill()
    kept = home.journal.last_seq()
    Runner(home.journal, home.settings).run(idle_s=0)
    fill()
    assert len(home.journal.read(0, limit=kept + 1, max_bytes=2**30)) == kept
    home.close()


def test_an_emitter_that_finds_the_journal_full_starts_the_runner_that_makes_room(
    tmp_path: Path, copy_folder: Path, end_runner: Callable[[Path], None]
) -> None:
    leave_only_copy(copy_folder)
    given = settings_of(tmp_path / "home", journal_max_bytes="1MiB", archive_enabled=False)
    journal = Journal(given.home)
    agree(journal, given)
    with pytest.raises(JournalFullError):
        for number in itertools.count():
            journal.append(Kind.OPENLINEAGE, b"%d" % number + bytes(50_000))
    home = Home(journal, Supervisor(journal, given))
    with pytest.raises(JournalFullError):
        home.append(Kind.OPENLINEAGE, b"one more", "")
    assert leases.is_held(given.home)
    end_runner(given.home)
    home.close()
