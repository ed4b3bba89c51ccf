"""A program that is gone: the runner ends its runs, and no others."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import events
import pytest

from waybill.transport import Journal, Kind, Settings, locks
from waybill.transport.home import Home
from waybill.transport.journal.begun import decode_begun, encode_begun
from waybill.transport.programs import this_program
from waybill.transport.runner import Runner, commits, note_program
from waybill.transport.runner.unended import PROGRAM_GONE as REASON, UnendedRuns

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of processes")

NOW_MS = 1_767_225_600_000
SCRIPT = """
import sys
from waybill.transport import Settings
from waybill.transport.home import Home

settings = Settings.load({"home": sys.argv[1], "runner": "none", "durability": sys.argv[2]}, env={})
home = Home.open(settings)
for line in sys.stdin.buffer:
    home.emit(line.strip())
    print("kept", flush=True)
"""
TRACKER = """
import sys
from waybill.transport import Settings, Tracker

tracker = Tracker(settings=Settings.load({"home": sys.argv[1], "runner": "none"}, env={}), system_name="east")
year = tracker.file("year.csv", data_source="in", annotations={"customer": "acme"})
months = year.split(["january.csv", "february.csv"])
with months[0]:
    print("split", flush=True)
    input()
"""


def event(run: str, kind: str, run_facets: Mapping[str, object] | None = None, **more: object) -> bytes:
    """An event whose job has more members."""
    job = events.named("ns/job") | more
    return events.event(run, kind, "2026-01-01T00:00:00Z", facets=run_facets, job=job)


STEPS = """
import asyncio, sys
from waybill.transport import AsyncTracker, Settings, Tracker

settings = Settings.load({"home": sys.argv[1], "runner": "none", "redact": sys.argv[3:]}, env={})

def plain():
    with Tracker(settings=settings) as tracker, tracker.file("a.csv", data_source="in") as f:
        with f.transform("decrypt"):
            pass
        with f.transform("unpack"):
            print("within", flush=True)
            input()

async def awaited():
    async with AsyncTracker(settings=settings) as tracker, await tracker.file("a.csv", data_source="in") as f:
        with f.transform("decrypt"):
            pass
        with f.transform("unpack"):
            await asyncio.sleep(0.5)
            print("within", flush=True)
            input()

plain() if sys.argv[2] == "plain" else asyncio.run(awaited())
"""


class Emitter:
    """A separate program that keeps events, and can be ended in any way."""

    def __init__(self, home: Path, durability: str = "power") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(home), durability],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def emit(self, *bodies: bytes) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        for body in bodies:
            self.process.stdin.write(body + b"\n")
            self.process.stdin.flush()
            assert self.process.stdout.readline() == b"kept\n"

    def end(self, number: int | None = signal.SIGKILL) -> None:
        if number is not None:
            self.process.send_signal(number)
        self.process.communicate()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def emitter(journal: Journal) -> Iterator[Callable[..., Emitter]]:
    begun: list[Emitter] = []

    def begin(durability: str = "power") -> Emitter:
        begun.append(Emitter(journal.home, durability))
        return begun[-1]

    yield begin
    for one in begun:
        one.process.kill()
        one.process.communicate()


def looked(journal: Journal) -> list[dict[str, Any]]:
    """Look until nothing is left to do; return the inferred events."""
    runs = UnendedRuns(journal)
    while runs.look(NOW_MS):
        pass
    events = [json.loads(one.body) for one in journal.read(0) if one.kind is Kind.OPENLINEAGE]
    return [one for one in events if "waybill_inferred" in one["run"]["facets"]]


@pytest.mark.parametrize("durability", ["power", "process"])
def test_the_open_runs_of_a_killed_program_are_ended_and_no_others(
    journal: Journal, emitter: Callable[..., Emitter], durability: str
) -> None:
    parent = {"parent": {"run": {"runId": "app"}, "job": {"namespace": "ns", "name": "app"}}}
    killed, living = emitter(durability), emitter(durability)
    living.emit(event("living", "START"))
    killed.emit(event("done", "START"), event("done", "COMPLETE"), event("open", "START", run_facets=parent))
    killed.end()
    (ended,) = looked(journal)
    assert (ended["run"]["runId"], ended["eventType"]) == ("open", "ABORT")
    assert (ended["job"], ended["eventTime"]) == (
        {"namespace": "ns", "name": "job"},
        "2026-01-01T00:00:00.000Z",
    )
    facets = ended["run"]["facets"]
    assert facets["parent"] == parent["parent"]
    assert facets["waybill_inferred"]["reason"] == REASON
    assert len(looked(journal)) == 1, "only once"


def test_a_program_that_ended_by_itself_has_its_runs_ended_but_not_its_files(
    journal: Journal, emitter: Callable[..., Emitter]
) -> None:
    program = emitter()
    program.emit(
        event("run", "START"), event("file", "START", run_facets={"waybill_deltaFile": {"did": "d"}})
    )
    program.end(None)
    assert [one["run"]["runId"] for one in looked(journal)] == ["run"]


@pytest.mark.parametrize("kind", ["COMPLETE", "FAIL"])
def test_what_its_ended_application_left_open_is_ended_as_that_was_once_the_program_is_gone(
    journal: Journal, emitter: Callable[..., Emitter], kind: str
) -> None:
    facets = {"jobType": {"integration": "SPARK", "processingType": "NONE", "jobType": "APPLICATION"}}
    of_spark = {"jobType": {"integration": "SPARK", "processingType": "BATCH", "jobType": "RDD_JOB"}}
    parent = {"parent": {"run": {"runId": "app"}, "job": {"namespace": "ns", "name": "app"}}}
    program = emitter()
    program.emit(
        event("app", "START", facets=facets),
        event("read", "START", run_facets=parent, facets=of_spark),
        event("app", kind, facets=facets),
    )
    program.end(None)
    (ended,) = looked(journal)
    assert (ended["run"]["runId"], ended["eventType"]) == ("read", kind)
    assert ended["run"]["facets"]["waybill_inferred"]["reason"] == "its application has ended"


OF_WRITE = {"jobType": {"integration": "SPARK", "processingType": "BATCH", "jobType": "SQL_JOB"}}
BEGAN_S = 1_767_225_600
UNKNOWN = "whether its write was finished is not known"


def write(run: str, kind: str, *outputs: Path | str, name: str = "append_data") -> bytes:
    """An event of a write of Spark's to folders, or to other stores."""
    named = [
        {"namespace": "s3://lake", "name": one}
        if isinstance(one, str)
        else {"namespace": "file", "name": str(one)}
        for one in outputs
    ]
    job = events.named(f"ns/{name}") | {"facets": OF_WRITE}
    facets = {"spark_applicationDetails": {"applicationId": "local-7"}}
    made = events.event(run, kind, "2026-01-01T00:00:00Z", job=job, outputs=named)
    whole = json.loads(made)
    whole["run"]["facets"] = {**whole["run"].get("facets", {}), **facets}
    return json.dumps(whole).encode()


def delta(operation: str, after_s: float = 5, engine: str = "Apache-Spark/4.0.5 Delta-Lake/4.0.0") -> str:
    """A commit of a Delta table."""
    at_ms = int((BEGAN_S + after_s) * 1000)
    return json.dumps({"commitInfo": {"timestamp": at_ms, "operation": operation, "engineInfo": engine}})


def iceberg(application: str, after_s: float = 5) -> str:
    """The metadata of an Iceberg table with one snapshot."""
    summary = {"operation": "append", "spark.app.id": application}
    snapshot = {"timestamp-ms": int((BEGAN_S + after_s) * 1000), "summary": summary}
    return json.dumps({"format-version": 2, "snapshots": [snapshot]})


def mark(path: Path, after_s: float, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (0, BEGAN_S + after_s))


@pytest.mark.parametrize(
    ("marker", "after_s", "text", "shown_by"),
    [
        ("_SUCCESS", 5, "", "_SUCCESS"),
        ("_delta_log/00000000000000000007.json", 5, delta("WRITE"), "_delta_log"),
        ("metadata/v7.metadata.json", 5, iceberg("local-7"), "metadata"),
        ("_SUCCESS", -5, "", None),
        ("_delta_log/00000000000000000007.crc", 5, delta("WRITE"), None),
        ("_delta_log/00000000000000000007.json", 5, delta("DELETE"), None),
        ("_delta_log/00000000000000000007.json", 5, delta("VACUUM END"), None),
        ("_delta_log/00000000000000000007.json", 5, delta("WRITE", -5), None),
        ("_delta_log/00000000000000000007.json", 5, delta("WRITE", engine="delta-rs:py-1.6.6"), None),
        ("_delta_log/00000000000000000007.json", 5, "damaged", None),
        ("metadata/v7.metadata.json", 5, iceberg("local-8"), None),
        ("metadata/v7.metadata.json", 5, iceberg("local-7", -5), None),  # a tag makes a file, no snapshot
        ("part-0.parquet", 5, "", None),
    ],
)
def test_the_write_of_a_killed_program_is_finished_if_its_place_shows_that(
    journal: Journal,
    emitter: Callable[..., Emitter],
    tmp_path: Path,
    marker: str,
    after_s: float,
    text: str,
    shown_by: str | None,
) -> None:
    program, out = emitter(), tmp_path / "out"
    program.emit(write("w", "START", out))
    mark(out / marker, after_s, text)
    program.end()
    (ended,) = looked(journal)
    is_finished = shown_by is not None
    says = f"{REASON}, but {shown_by} of its output is newer than its start" if is_finished else REASON
    assert ended["run"]["facets"]["waybill_inferred"]["reason"] == says
    assert ended["eventType"] == ("COMPLETE" if is_finished else "ABORT")
    assert ended["outputs"] == ([{"namespace": "file", "name": str(out)}] if is_finished else [])
    assert ended["eventTime"] == f"2026-01-01T00:00:{'05' if is_finished else '00'}.000Z"


@pytest.mark.parametrize("part", ["branch_audit", "wap_7"])
def test_the_commit_to_a_branch_is_in_the_metadata_of_its_table(
    journal: Journal, emitter: Callable[..., Emitter], tmp_path: Path, part: str
) -> None:
    program = emitter()
    program.emit(write("w", "START", tmp_path / f"t.{part}"))
    mark(tmp_path / "t/metadata/v7.metadata.json", 5, iceberg("local-7"))
    program.end()
    (ended,) = looked(journal)
    assert ended["eventType"] == "COMPLETE"
    assert ended["outputs"] == [{"namespace": "file", "name": str(tmp_path / f"t.{part}")}]


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("execute_merge_into_command", "MERGE"),
        ("execute_delete_command", "DELETE"),
        ("atomic_replace_table_as_select", "CREATE OR REPLACE TABLE AS SELECT"),
        ("columnar_to_row", "STREAMING UPDATE"),
    ],
)
def test_the_commit_of_a_delta_table_is_that_of_a_killed_program_if_its_operation_is(
    journal: Journal, emitter: Callable[..., Emitter], tmp_path: Path, name: str, operation: str
) -> None:
    program = emitter()
    for place in ("same", "other"):
        program.emit(write(place, "START", tmp_path / place, name=name))
    mark(tmp_path / "same/_delta_log/00000000000000000001.json", 5, delta(operation))
    mark(tmp_path / "other/_delta_log/00000000000000000001.json", 5, delta("OPTIMIZE"))
    program.end()
    kinds = {one["run"]["runId"]: one["eventType"] for one in looked(journal)}
    assert kinds == {"same": "COMPLETE", "other": "ABORT"}


def test_a_place_that_cannot_be_looked_at_leaves_the_end_unknown(
    journal: Journal, emitter: Callable[..., Emitter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = emitter()
    program.emit(write("remote", "START", "/out"), write("two", "START", tmp_path / "out", "/two"))
    program.end()
    assert {one["run"]["facets"]["waybill_inferred"]["reason"] for one in looked(journal)} == {
        f"{REASON}; {UNKNOWN}: its output is not on this machine"
    }
    monkeypatch.setattr(commits, "LOOK_TIMEOUT_S", 0.05)
    answers = threading.Event()
    monkeypatch.setattr(Path, "glob", lambda *_: answers.wait(30) and [])
    program = emitter()
    program.emit(write("hangs", "START", tmp_path / "out"))
    program.end()
    reasons = {
        one["run"]["runId"]: one["run"]["facets"]["waybill_inferred"]["reason"] for one in looked(journal)
    }
    assert reasons["hangs"] == f"{REASON}; {UNKNOWN}: its file system does not answer"
    answers.set()


@pytest.mark.parametrize("later", ["by the runner", "by the next one"])
def test_what_another_run_may_have_written_says_nothing_of_a_killed_one(
    journal: Journal, emitter: Callable[..., Emitter], tmp_path: Path, later: str
) -> None:
    program, other, out = emitter(), emitter(), tmp_path / "out"
    program.emit(write("w", "START", out))
    if later == "by the next one":
        assert looked(journal) == []
    other.emit(write("again", "START", out), write("again", "COMPLETE", out))
    mark(out / "_SUCCESS", 5)
    program.end()
    (ended,) = looked(journal)
    assert ended["eventType"] == "ABORT"
    assert (
        ended["run"]["facets"]["waybill_inferred"]["reason"]
        == f"{REASON}; {UNKNOWN}: another run wrote there since"
    )


def test_the_files_of_a_killed_tracker_are_cancelled_with_what_is_known_of_them(
    home: Path, journal: Journal
) -> None:
    command = [sys.executable, "-c", TRACKER, str(home)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"split\n"
        process.kill()
    files = [one["run"]["facets"]["waybill_deltaFile"] for one in looked(journal)]
    assert sorted(file["filename"] for file in files) == ["february.csv", "january.csv"]
    assert {file["annotations"]["customer"] for file in files} == {"acme"}
    assert all("finalState" not in file or file["finalState"] is None for file in files)


@contextlib.contextmanager
def killed_within(home: Path, how: str, *rules: str) -> Iterator[None]:
    """A program in the middle of its second transform, `unpack`; it is killed at the end."""
    command = [sys.executable, "-c", STEPS, str(home), how, *rules]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"within\n"
        yield
        process.kill()


@pytest.mark.parametrize("how", ["plain", "awaited"])
def test_the_end_of_a_killed_tracker_s_file_names_the_transform_that_it_began_last(
    home: Path, journal: Journal, how: str
) -> None:
    with killed_within(home, how):
        pass
    (ended,) = looked(journal)
    facets = ended["run"]["facets"]
    assert ended["eventType"] == "ABORT"
    assert facets["waybill_deltaFile"]["transforms"] == ["decrypt", "unpack"]
    assert facets["waybill_inferred"]["reason"] == f"{REASON}; the last transform that it began is 'unpack'"


@pytest.mark.parametrize(
    ("rule", "names"),
    [
        ("run.facets.waybill_deltaFile.transforms=mask", ["[redacted]", "[redacted]"]),
        ("run.facets.waybill_deltaFile", []),
    ],
)
def test_what_is_begun_is_noted_as_redacted_as_an_event(
    home: Path, journal: Journal, rule: str, names: list[str]
) -> None:
    with killed_within(home, "plain", rule):
        pass
    notes = [entry.begun_transforms for entry in journal.read(0)]
    assert [list(note.names) for note in notes if note is not None][-1] == names
    looked(journal)
    assert all(b"unpack" not in entry.body for entry in journal.read(0))


def test_the_next_runner_knows_what_a_file_had_begun(home: Path, journal: Journal) -> None:
    with killed_within(home, "plain"):
        assert looked(journal) == []
    journal.append(Kind.OPENLINEAGE, event("another", "COMPLETE"))
    journal.prune(journal.last_seq(), 2**62)
    assert journal.first() is not None
    assert [one for one in journal.read(0) if one.begun_transforms] == []
    (ended,) = looked(journal)
    assert ended["run"]["facets"]["waybill_deltaFile"]["transforms"] == ["decrypt", "unpack"]


def test_a_note_that_comes_after_the_end_of_its_file_says_nothing(home: Path) -> None:
    opened = Home.open(Settings.load({"home": home, "runner": "none"}, env={}))
    opened.emit(event("r", "START"))
    opened.emit(event("r", "COMPLETE"))
    opened.note_transforms("r", ["late"], waits=True)
    assert looked(opened.journal) == []
    assert set(opened.journal.state("programs", "run:")) == set()
    opened.close()


def test_notes_are_neither_waited_for_nor_kept_while_the_journal_is_full(home: Path) -> None:
    opened = Home.open(Settings.load({"home": home, "runner": "none"}, env={}))
    opened.emit(event("r", "START"))
    opened.note_transforms("r", ["unpack"], waits=True)
    assert opened.journal.waiting(0).entries == 1
    opened.close()
    limit = {"home": home, "runner": "none", "journal_max_bytes": "1MiB"}
    full = Home.open(Settings.load(limit, env={}))
    full.emit(event("large", "START", documentation="x" * 2**20))
    last = full.journal.last_seq()
    full.close()
    full = Home.open(Settings.load(limit, env={}))
    full.note_transforms("r", ["unpack", "load"], waits=True)
    assert full.journal.last_seq() == last
    full.close()


def test_a_note_rides_on_the_next_event_s_fsync(home: Path) -> None:
    opened = Home.open(Settings.load({"home": home, "runner": "none", "durability": "power"}, env={}))
    opened.emit(event("r", "START"))
    assert not opened.journal.has_unsynced
    opened.note_transforms("r", ["unpack"], waits=True)
    assert opened.journal.has_unsynced
    opened.emit(event("r", "COMPLETE"))
    assert not opened.journal.has_unsynced
    opened.close()


def test_a_note_keeps_the_last_names_of_very_many_and_their_number() -> None:
    names = [f"transform {number:05}" for number in range(10_000)]
    mark = encode_begun("r", names)
    begun = decode_begun(mark)
    assert len(mark) < 20_000
    assert begun is not None
    assert begun.count == 10_000
    assert list(begun.names) == names[-len(begun.names) :]
    assert 100 < len(begun.names) < 1_000
    too_long = decode_begun(encode_begun("r", ["x" * 10_000]))
    assert too_long is not None
    assert (too_long.count, too_long.names) == (1, ())
    assert decode_begun(b"transforms:{") is None
    assert decode_begun(b"flush") is None


@pytest.mark.parametrize("integration", ["AIRFLOW", "DAGSTER"])
def test_the_runs_of_a_scheduler_outlive_the_process_that_tells_of_them(
    journal: Journal, emitter: Callable[..., Emitter], integration: str
) -> None:
    killed = emitter()
    killed.emit(event("r", "START", facets={"jobType": {"integration": integration}}))
    killed.end()
    assert looked(journal) == []


def test_nothing_is_followed_while_no_program_is_noted(journal: Journal) -> None:
    journal.append(Kind.OPENLINEAGE, event("r", "START"), program="a.b.c.1.2")
    assert looked(journal) == []
    assert set(journal.state("programs")) == {"upto"}


def test_an_entry_names_its_program_and_a_mark_names_none(home: Path) -> None:
    opened = Home.open(Settings.load({"home": home, "runner": "none"}, env={}))
    opened.emit(event("r", "START"))
    opened.journal.mark(b"flush")
    assert [one.program for one in opened.journal.read(0)] == [str(this_program()), None]
    opened.close()


def test_a_fork_keeps_its_entries_as_a_program_of_its_own(home: Path) -> None:
    opened = Home.open(Settings.load({"home": home, "runner": "none"}, env={}))
    opened.emit(event("parents", "START"))
    if (pid := os.fork()) == 0:
        opened.emit(event("childs", "START"))
        os._exit(0)
    os.waitpid(pid, 0)
    assert [one["run"]["runId"] for one in looked(opened.journal)] == ["childs"]
    opened.close()


def test_a_runner_waits_for_a_living_program_with_an_open_run_and_no_longer(
    journal: Journal, emitter: Callable[..., Emitter]
) -> None:
    program = emitter()
    program.emit(event("r", "START"))
    lease = locks.take(journal.home)
    assert lease is not None
    settings = Settings.load({"home": journal.home, "archive_enabled": False}, env={})
    looks = 0

    def killed_at_the_third_look() -> bool:
        nonlocal looks
        looks += 1
        if looks == 3:
            program.end()
        return False

    Runner(journal, settings).run(idle_s=0.0, blocked_s=60.0, until=killed_at_the_third_look)
    lease.release()
    assert looks >= 3
    assert len(looked(journal)) == 1


def test_a_program_is_noted_from_its_first_entry_on(journal: Journal) -> None:
    program = this_program()
    assert program is not None
    journal.append(Kind.OPENLINEAGE, event("before", "START"))
    note_program(journal, program)
    journal.append(Kind.OPENLINEAGE, event("r", "START"), program=str(program))
    note_program(journal, program)
    runs = UnendedRuns(journal)
    runs.look(NOW_MS)
    assert runs.waits
    assert len(journal.state("programs", "run:")) == 1
