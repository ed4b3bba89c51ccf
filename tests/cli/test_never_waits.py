"""Commands that only read wait for no writer, and need no right to write."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pytest
from served import without_runner
from typer.testing import CliRunner

from waybill.cli.app import app
from waybill.lineage import Lineage
from waybill.transport import Journal, Settings, Tracker, flush

if TYPE_CHECKING:
    from conftest import Run

STOPPED = """if True:
    import fcntl, os, signal, sys, apsw
    lock = os.open(sys.argv[1] + "/journal.lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    writers = {}
    for name, table, column in (("journal", "entries", "received_ms"), ("index", "run", "last_ms")):
        writers[name] = apsw.Connection(f"{sys.argv[1]}/{name}.db")
        writers[name].execute("BEGIN IMMEDIATE")
        writers[name].execute(f"UPDATE {table} SET {column} = {column} + 1")
    print("inside", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""
ASKED = [
    ["status"],
    ["doctor"],
    ["settings"],
    ["where", "RECEIPT"],
    ["poison", "list"],
    ["dead-letters", "list"],
    ["rejects", "list"],
    ["keys", "list"],
    ["find", "--json"],
    ["find", "--open"],
    ["find", "--count", "--missing-sink", "lake"],
    ["trace", "a.csv"],
    ["duplicates"],
    ["explain", "DID"],
    ["slis", "--tier", "critical"],
    ["sql", "SELECT count(*) FROM provenance"],
    ["verify"],
    ["root", "show"],
    ["root", "adopt", "--dry-run"],
    ["init", "--check"],
    ["age-off", "--archive-days", "1", "--dry-run"],
    ["close-stale", "--older-than", "0s", "--as", "ERROR", "--dry-run"],
    ["repair", "--dry-run"],
    ["export", ".", "--dry-run"],
]
CANNOT_WRITE = """if True:
    import contextlib, io, os, sys
    from waybill.cli import main
    def code_of(asked):
        sys.argv = ["waybill", *asked.split("|"), "--home", sys.argv[-1]]
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                main()
        except SystemExit as ended:
            return int(ended.code or 0)
    asked, home = sys.argv[1:-1], sys.argv[-1]
    # Everything is loaded before the program becomes a user who may not read the interpreter's files.
    for one in asked:
        code_of(one)
    os.setgid(65534)
    os.setuid(65534)
    for one in asked:
        print(one, code_of(one))
"""


def make_home(home: Path) -> str:
    """A home with a file that is filed, one that is not yet, and an open one; the did of the first."""
    given = {"home": home, "system_name": "tests", "provenance_enabled": True, "runner": "none"}
    settings = Settings.load(given, origin="tests", env={}, cwd=home.parent)
    with Tracker(settings=settings) as tracker:
        with tracker.file("a.csv", data_source="in") as first:
            first.egress("lake")
        assert flush(settings).left == {}
        with tracker.file("b.csv", data_source="in") as second:
            second.egress("lake")
        tracker.file("open.csv", data_source="in")
    return first.did


@pytest.fixture
def filed() -> Iterator[tuple[Path, str]]:
    """Such a home in a folder that every user may enter; those of pytest are only its own user's."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        home = Path(folder, "home")
        yield home, make_home(home)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """Such a home, a program of which is stopped inside a commit."""
    home = tmp_path_factory.mktemp("stopped") / "home"
    did = make_home(home)
    with subprocess.Popen([sys.executable, "-c", STOPPED, home], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"inside\n"
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        yield home, did
        child.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("asked", ASKED, ids=" ".join)
def test_a_question_is_answered_while_a_program_is_stopped_inside_a_commit(
    called: Run, stopped: tuple[Path, str], asked: list[str]
) -> None:
    home, did = stopped
    words, before = filled(asked, home, did), times_in(home)
    done = called(*words, "--home", home)
    assert done.returncode == 0, done.stderr
    assert times_in(home) == before


def test_a_collector_answers_while_a_program_is_stopped_inside_a_commit(tmp_path: Path) -> None:
    did = make_home(tmp_path / "home")
    with (
        without_runner(tmp_path / "home") as collector,
        subprocess.Popen([sys.executable, "-c", STOPPED, tmp_path / "home"], stdout=subprocess.PIPE) as child,
    ):
        assert child.stdout is not None
        assert child.stdout.readline() == b"inside\n"
        found = collector.get("/api/v1/records").json
        assert sorted(one["filename"] for one in found) == ["a.csv", "b.csv"]
        assert [one["filename"] for one in collector.get("/api/v1/records/open").json] == ["open.csv"]
        assert [one["did"] for one in collector.get(f"/trace/{did}").json["files"]] == [did]
        child.send_signal(signal.SIGKILL)


def test_so_is_what_marquez_lacks(called: Run, stopped: tuple[Path, str]) -> None:
    done = called("reconcile", "--home", stopped[0])
    assert (done.returncode, "no Marquez is set" in done.stderr) == (2, True)


def test_so_is_what_a_shell_asks_for(stopped: tuple[Path, str]) -> None:
    line = f"waybill poison list --home {stopped[0]} --projection l"
    environment = {"_WAYBILL_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": "6"}
    offered = CliRunner().invoke(app, [], prog_name="waybill", env=environment).stdout
    assert offered.split() == ["layout"]


def filled(asked: list[str], home: Path, did: str) -> list[str]:
    with contextlib.closing(Journal(home, to_read=True)) as journal:
        values = {"DID": did, "RECEIPT": f"{journal.node}-{journal.last_seq()}"}
    return [values.get(word, word) for word in asked]


def run_without_own_files(program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent"}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd="/")


def times_in(home: Path) -> dict[Path, int]:
    """When each file was changed; the index of a WAL is nobody's concern."""
    return {path: path.stat().st_mtime_ns for path in home.rglob("*.*") if path.suffix != ".db-shm"}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_commands_that_only_read_need_no_right_to_write(filed: tuple[Path, str]) -> None:
    home, did = filed
    asked = ["|".join(filled(words, home, did)) for words in ASKED]
    for path in [home, *home.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    done = run_without_own_files(CANNOT_WRITE, *asked, home)
    # The doctor says that it cannot be written.
    assert done.stdout.splitlines() == [f"{words} {int(words == 'doctor')}" for words in asked], done.stderr


def answers_of(home: Path) -> tuple[list[str], list[str | None]]:
    lineage = Lineage.open(home)
    names = sorted(record.filename for record in lineage.find())
    return names, [file.filename for file in lineage.open_files()]


WHOLE = (["a.csv", "b.csv"], ["open.csv"])


def test_a_copy_of_a_home_answers_as_the_home_does(filed: tuple[Path, str], tmp_path: Path) -> None:
    home, _ = filed
    assert answers_of(home) == WHOLE
    copy = tmp_path / "copy"
    shutil.copytree(home, copy, ignore=shutil.ignore_patterns("*-shm"))
    assert answers_of(copy) == WHOLE


@pytest.mark.parametrize("has_log", [True, False])
def test_a_home_that_nobody_may_write_answers_as_before(filed: tuple[Path, str], *, has_log: bool) -> None:
    home, _ = filed
    assert answers_of(home) == WHOLE
    for path in home.glob("*-shm"):
        path.unlink()
    if not has_log:
        for name in ("journal.db", "index.db"):
            connection = apsw.Connection(str(home / name))
            assert connection.pragma("journal_mode") == "wal"
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            connection.close()
            for suffix in ("-wal", "-shm"):
                (home / f"{name}{suffix}").unlink(missing_ok=True)
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*")}
    # Everything is loaded before the program becomes a user who may not read the interpreter's files.
    program = (
        "import os\n"
        "from pathlib import Path\n"
        "from waybill.lineage import Lineage\n"
        "def ask(home):\n"
        "    lineage = Lineage.open(home)\n"
        "    return sorted(r.filename for r in lineage.find()), [f.filename for f in lineage.open_files()]\n"
        f"home = Path({str(home)!r})\n"
        "ask(home)\n"
        "for path in [*home.glob('*-shm'), *home.glob('*-wal')]:\n"
        "    if path.name.endswith('-shm') or not path.stat().st_size:\n"
        "        path.unlink()\n"
        "os.setgid(65534); os.setuid(65534); print(*ask(home))"
    )
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    for path in [home, *home.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    done = run_without_own_files(program)
    assert done.stdout.strip() == f"{WHOLE[0]} {WHOLE[1]}", done.stderr
    assert {path: path.stat().st_mtime_ns for path in home.rglob("*")} == before
