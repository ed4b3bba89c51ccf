"""No entry can stop a projection: an entry that fails alone is poison, and everything else continues."""

from __future__ import annotations

import contextlib
import functools
import resource
import signal
import subprocess
import sys
from pathlib import Path

from forking import in_fork
from waiting import wait_until

from waybill.transport import Journal, Kind, Settings, flush, locks as leases
from waybill.transport.__main__ import main as run_home
from waybill.transport.config import agree
from waybill.transport.runner import Progress, progress_of

TRIES = 3


def settings_of(home: Path) -> Settings:
    return Settings.load({"home": home, "archive_enabled": False}, env={}, cwd=home.parent)


wait_for = functools.partial(wait_until, timeout_s=60)


def copied(folder: Path) -> list[bytes]:
    return (folder / "copied").read_bytes().split() if (folder / "copied").exists() else []


def test_an_entry_that_cannot_be_applied_is_set_aside_and_its_neighbours_are_applied(
    copy_folder: Path, journal: Journal, home: Path
) -> None:
    bodies = [b"%d" % number for number in range(20)]
    bodies[4], bodies[11] = traps = [b"raise", b"allocate"]
    seqs = journal.append_many((Kind.OPENLINEAGE, body, "") for body in bodies)
    report = flush(settings_of(home))
    assert "copy" not in report.left
    assert copied(copy_folder) == [body for body in bodies if body not in traps]
    found = [(one.projection, one.seq, one.tries, one.reason) for one in journal.poison.all()]
    of_memory = "applying it needs more memory than there is, or than the 2 GiB that one try may use"
    assert found == [
        ("copy", seqs[4], TRIES, "ValueError: a trap"),
        ("copy", seqs[11], TRIES, of_memory),
    ]
    assert journal.poison.body("copy", seqs[11]) == b"allocate"
    assert progress_of(journal, "copy", seqs[11]) is Progress.POISON
    assert progress_of(journal, "copy", seqs[12]) is Progress.DONE


def test_memory_that_is_short_for_a_while_makes_no_entry_poison(
    copy_folder: Path, journal: Journal, home: Path
) -> None:
    agree(journal, settings_of(home))
    journal.append(Kind.OPENLINEAGE, b"large")
    limits = resource.getrlimit(resource.RLIMIT_AS)
    command = [sys.executable, "-m", "waybill.transport", str(home)]
    runner = subprocess.Popen(["/bin/sh", "-c", 'ulimit -Sv 1000000 && exec "$@"', "sh", *command])
    short = copy_folder / "short"
    wait_for(lambda: short.exists() and set(short.read_text().split()) > {str(runner.pid)})
    resource.prlimit(runner.pid, resource.RLIMIT_AS, limits)
    wait_for(lambda: copied(copy_folder) == [b"large"] or journal.poison.all() != [])
    assert journal.poison.all() == []
    runner.kill()
    runner.wait()


def test_a_projection_that_is_short_of_memory_for_a_moment_waits_and_has_no_problem(
    tmp_path: Path, copy_folder: Path
) -> None:
    with contextlib.closing(Journal(tmp_path / "home")) as journal:
        journal.append_many((Kind.OPENLINEAGE, body, "") for body in (b"a", b"short-once", b"b"))
        report = flush(settings_of(tmp_path / "home"))
        assert ("copy" in report.left, report.problems.get("copy")) == (False, None)
        assert sorted(set(copied(copy_folder))) == [b"a", b"b", b"short-once"]
        assert (journal.poison.all(), (copy_folder / "was short").exists()) == ([], True)


def test_an_entry_at_which_three_runners_die_is_set_aside_and_its_neighbours_are_applied(
    copy_folder: Path, journal: Journal, home: Path
) -> None:
    agree(journal, settings_of(home))
    journal.append_many((Kind.OPENLINEAGE, body, "") for body in (b"a", b"kill", b"b"))
    for _ in range(TRIES):
        assert in_fork(lambda: run_home(journal.home)) == -signal.SIGKILL
    assert (copied(copy_folder), journal.poison.all()) == ([], [])
    flush(settings_of(home))
    assert copied(copy_folder) == [b"a", b"b"]
    (poison,) = journal.poison.all("copy")
    assert poison.reason == "it kills the process that applies it (signal SIGKILL)"


def test_a_projection_that_fails_whatever_the_entry_makes_none_of_them_poison(
    copy_folder: Path, journal: Journal, home: Path
) -> None:
    journal.append_many((Kind.OPENLINEAGE, body, "") for body in (b"a", b"b"))
    (copy_folder / "bug").touch()
    report = flush(settings_of(home))
    assert (report.problems["copy"], report.left["copy"]) == ("RuntimeError: a bug", 2)
    assert journal.poison.all() == []
    (copy_folder / "bug").unlink()
    flush(settings_of(home))
    assert copied(copy_folder) == [b"a", b"b"]


def test_poison_is_tried_again_at_a_mark_and_is_poison_no_longer_once_it_is_applied(
    copy_folder: Path, journal: Journal, home: Path
) -> None:
    journal.append_many((Kind.OPENLINEAGE, body, "") for body in (b"a", b"raise", b"b"))
    flush(settings_of(home))
    (mark,) = journal.poison.retry("copy", [2])
    assert progress_of(journal, "copy", 2) is Progress.WAITING
    flush(settings_of(home))
    (again,) = journal.poison.all()
    assert (again.seq, again.tries, again.retry_seq) == (2, 2 * TRIES, None)

    module = copy_folder.parent / "site/third_party.py"
    # Another length, because bytecode of the same second and size would be taken for this module's.
    module.write_text(module.read_text().replace('b"raise"', 'b"no trap"'))
    sys.modules.pop("third_party")
    journal.poison.retry("copy", [2])
    flush(settings_of(home))
    assert copied(copy_folder) == [b"a", b"b", b"raise"]
    assert journal.poison.all() == []
    assert progress_of(journal, "copy", 2) is Progress.DONE
    assert mark > 2


def test_the_process_that_works_a_projection_apart_ends_with_its_runner(
    copy_folder: Path, journal: Journal, home: Path
) -> None:
    agree(journal, settings_of(home))
    journal.append(Kind.OPENLINEAGE, b"hang")
    runner = subprocess.Popen([sys.executable, "-m", "waybill.transport", str(home)])
    wait_for((copy_folder / "hangs").exists)
    apart = int((copy_folder / "hangs").read_text())
    assert apart != runner.pid
    runner.kill()
    runner.wait()
    wait_for(lambda: not leases.is_held(home))
    assert journal.poison.all() == []
