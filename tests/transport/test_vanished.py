"""A program that is gone: the runner ends its runs, and no others."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import events
import pytest

from waybill.transport import AsyncTracker, Journal, Kind, Settings, Tracker, locks
from waybill.transport.home import Home
from waybill.transport.journal.begun import decode_begun, encode_begun
from waybill.transport.programs import this_program
from waybill.transport.runner import Runner, commits, note_program
from waybill.transport.runner.unended import PROGRAM_GONE as REASON, UnendedRuns

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of processes")

NOW_MS = 1_767_225_600_000
TRACKER = """
import sys
from waybill.transport import Settings, Tracker

tracker = Tracker(settings=Settings.load({"home": sys.argv[1], "runner": "none"}, env={}), system_name="east")
year = tracker.file("year.csv", data_source="in", annotations={"customer": "acme"})
january, february = year.split(["january.csv", "february.csv"])
with january:
    with january.transform("decrypt"):
        pass
    with january.transform("unpack"):
        print("within", flush=True)
        input()
"""


def event(run: str, kind: str, run_facets: Mapping[str, object] | None = None, **more: object) -> bytes:
    """An event whose job has more members."""
    job = events.named("ns/job") | more
    return events.event(run, kind, "2026-01-01T00:00:00Z", facets=run_facets, job=job)


class Emitter:
    """A program as the journal knows it, which lives until it is ended."""

    def __init__(self, journal: Journal, pid: int, dead: set[int]) -> None:
        here = this_program()
        assert here is not None
        self._journal, self._dead, self._program = journal, dead, here._replace(pid=pid)

    def emit(self, *bodies: bytes) -> None:
        note_program(self._journal, self._program)
        items = [(Kind.OPENLINEAGE, body, "tests") for body in bodies]
        self._journal.append_many(items, program=str(self._program))

    def end(self, *, normally: bool = False) -> None:
        if normally:
            note_program(self._journal, self._program, has_left=True)
        self._dead.add(self._program.pid)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The ids of the programs that are gone; all others are there."""
    pids: set[int] = set()
    monkeypatch.setattr("waybill.transport.programs._is_alive", lambda pid, _: pid not in pids)
    return pids


@pytest.fixture
def emitter(journal: Journal, dead: set[int]) -> Callable[[], Emitter]:
    pids = count(10_000_000)
    return lambda: Emitter(journal, next(pids), dead)


def opened_home(home: Path, **given: object) -> Home:
    return Home.open(Settings.load({"home": home, "runner": "none", **given}, env={}))


def looked(journal: Journal) -> list[dict[str, Any]]:
    """Look until nothing is left to do; return the inferred events."""
    runs = UnendedRuns(journal)
    while runs.look(NOW_MS):
        pass
    events = [json.loads(one.body) for one in journal.read(0) if one.kind is Kind.OPENLINEAGE]
    return [one for one in events if "waybill_inferred" in one["run"]["facets"]]


def test_the_open_runs_of_a_killed_program_are_ended_and_no_others(
    journal: Journal, emitter: Callable[[], Emitter]
) -> None:
    parent = {"parent": {"run": {"runId": "app"}, "job": {"namespace": "ns", "name": "app"}}}
    killed, living = emitter(), emitter()
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
    file = event("file", "START", run_facets={"waybill_deltaFile": {"did": "d"}})
    living.emit(file)
    living.end(normally=True)
    ends = [one["run"]["runId"] for one in looked(journal)]
    assert ends == ["open", "living"], "nothing more is expected of a file whose program ended by itself"


@pytest.mark.parametrize("kind", ["COMPLETE", "FAIL"])
def test_what_its_ended_application_left_open_is_ended_as_that_was_once_the_program_is_gone(
    journal: Journal, emitter: Callable[[], Emitter], kind: str
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
    program.end(normally=True)
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


LOG = "t/_delta_log/00000000000000000007.json"
METADATA = "t/metadata/v7.metadata.json"
APPEND = "append_data"
WRITES: list[tuple[str, str, str, float, str, str | None]] = [
    (APPEND, "t", "t/_SUCCESS", 5, "", "_SUCCESS"),
    (APPEND, "t", "t/_SUCCESS", -5, "", None),
    (APPEND, "t", "t/part-0.parquet", 5, "", None),
    (APPEND, "t", LOG, 5, delta("WRITE"), "_delta_log"),
    (APPEND, "t", LOG.replace("json", "crc"), 5, delta("WRITE"), None),
    (APPEND, "t", LOG, 5, delta("DELETE"), None),
    (APPEND, "t", LOG, 5, delta("VACUUM END"), None),
    (APPEND, "t", LOG, 5, delta("WRITE", -5), None),
    (APPEND, "t", LOG, 5, delta("WRITE", engine="delta-rs:py-1.6.6"), None),
    (APPEND, "t", LOG, 5, "damaged", None),
    ("execute_merge_into_command", "t", LOG, 5, delta("MERGE"), "_delta_log"),
    ("execute_merge_into_command", "t", LOG, 5, delta("OPTIMIZE"), None),
    ("execute_delete_command", "t", LOG, 5, delta("DELETE"), "_delta_log"),
    ("atomic_replace_table_as_select", "t", LOG, 5, delta("CREATE OR REPLACE TABLE AS SELECT"), "_delta_log"),
    ("columnar_to_row", "t", LOG, 5, delta("STREAMING UPDATE"), "_delta_log"),
    (APPEND, "t", METADATA, 5, iceberg("local-7"), "metadata"),
    (APPEND, "t.branch_audit", METADATA, 5, iceberg("local-7"), "metadata"),
    (APPEND, "t.wap_7", METADATA, 5, iceberg("local-7"), "metadata"),
    (APPEND, "t", METADATA, 5, iceberg("local-8"), None),
    (APPEND, "t", METADATA, 5, iceberg("local-7", -5), None),  # a tag makes a file, no snapshot
]
"""The job, where it writes, a file that is there, when that was written, what is in it, and what it shows."""


def test_the_write_of_a_killed_program_is_finished_if_its_place_shows_that(
    journal: Journal, emitter: Callable[[], Emitter], tmp_path: Path
) -> None:
    program, expected = emitter(), {}
    for number, (job, place, marker, after_s, text, shown_by) in enumerate(WRITES):
        out = tmp_path / str(number) / place
        program.emit(write(str(number), "START", out, name=job))
        mark(tmp_path / str(number) / marker, after_s, text)
        outputs = [{"namespace": "file", "name": str(out)}]
        says = f"{REASON}, but {shown_by} of its output is newer than its start"
        finished = ("COMPLETE", "2026-01-01T00:00:05.000Z", outputs, says)
        is_finished = shown_by is not None
        expected[str(number)] = finished if is_finished else ("ABORT", "2026-01-01T00:00:00.000Z", [], REASON)
    program.end()
    found = {
        one["run"]["runId"]: (
            one["eventType"],
            one["eventTime"],
            one["outputs"],
            one["run"]["facets"]["waybill_inferred"]["reason"],
        )
        for one in looked(journal)
    }
    assert found == expected


def test_a_place_that_cannot_be_looked_at_leaves_the_end_unknown(
    journal: Journal, emitter: Callable[[], Emitter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    journal: Journal, emitter: Callable[[], Emitter], tmp_path: Path, later: str
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
        assert process.stdout.readline() == b"within\n"
        process.kill()
    ended = {one["run"]["facets"]["waybill_deltaFile"]["filename"]: one for one in looked(journal)}
    assert {one["eventType"] for one in ended.values()} == {"ABORT"}
    files = {name: one["run"]["facets"]["waybill_deltaFile"] for name, one in ended.items()}
    assert {file["annotations"]["customer"] for file in files.values()} == {"acme"}
    assert all("finalState" not in file or file["finalState"] is None for file in files.values())
    reasons = {name: one["run"]["facets"]["waybill_inferred"]["reason"] for name, one in ended.items()}
    assert reasons == {
        "january.csv": f"{REASON}; the last transform that it began is 'unpack'",
        "february.csv": REASON,
    }
    assert files["january.csv"]["transforms"] == ["decrypt", "unpack"]


def begin_steps(home: Path, *rules: str) -> None:
    """Leave a file in the middle of its second transform, `unpack`."""
    settings = Settings.load({"home": home, "runner": "none", "redact": rules}, env={})
    file = Tracker(settings=settings).file("a.csv", data_source="in")
    with file.transform("decrypt"):
        pass
    file.transform("unpack").__enter__()


def test_a_transform_in_an_event_loop_is_noted_too(home: Path, journal: Journal) -> None:
    async def begin() -> None:
        settings = Settings.load({"home": home, "runner": "none"}, env={})
        async with AsyncTracker(settings=settings) as tracker:
            file = await tracker.file("a.csv", data_source="in")
            file.transform("unpack").__enter__()

    asyncio.run(begin())
    notes = [entry.begun_transforms for entry in journal.read(0)]
    assert [note.names for note in notes if note is not None] == [("unpack",)]


@pytest.mark.parametrize(
    ("rule", "names"),
    [
        ("run.facets.waybill_deltaFile.transforms=mask", ["[redacted]", "[redacted]"]),
        ("run.facets.waybill_deltaFile", []),
    ],
)
def test_what_is_begun_is_noted_as_redacted_as_an_event(
    home: Path, journal: Journal, dead: set[int], rule: str, names: list[str]
) -> None:
    begin_steps(home, rule)
    notes = [entry.begun_transforms for entry in journal.read(0)]
    assert [list(note.names) for note in notes if note is not None][-1] == names
    dead.add(os.getpid())
    assert len(looked(journal)) == 1
    assert all(b"unpack" not in entry.body for entry in journal.read(0))


def test_the_next_runner_knows_what_a_file_had_begun(home: Path, journal: Journal, dead: set[int]) -> None:
    begin_steps(home)
    assert looked(journal) == []
    journal.append(Kind.OPENLINEAGE, event("another", "COMPLETE"))
    journal.prune(journal.last_seq(), 2**62)
    assert journal.first() is not None
    assert [one for one in journal.read(0) if one.begun_transforms] == []
    dead.add(os.getpid())
    (ended,) = looked(journal)
    assert ended["run"]["facets"]["waybill_deltaFile"]["transforms"] == ["decrypt", "unpack"]


def test_a_note_that_comes_after_the_end_of_its_file_says_nothing(home: Path) -> None:
    opened = opened_home(home)
    opened.emit(event("r", "START"))
    opened.emit(event("r", "COMPLETE"))
    opened.note_transforms("r", ["late"], waits=True)
    assert looked(opened.journal) == []
    assert set(opened.journal.state("programs", "run:")) == set()
    opened.close()


def test_a_note_rides_on_the_next_event_s_fsync_and_is_left_out_while_the_journal_is_full(home: Path) -> None:
    opened = opened_home(home, durability="power", journal_max_bytes="1MiB")
    opened.emit(event("r", "START"))
    assert not opened.journal.has_unsynced
    opened.note_transforms("r", ["unpack"], waits=True)
    assert opened.journal.has_unsynced
    assert opened.journal.waiting(0).entries == 1, "nobody waits for a note"
    opened.emit(event("large", "START", documentation="x" * 2**20))
    assert not opened.journal.has_unsynced
    last = opened.journal.last_seq()
    opened.close()
    full = opened_home(home, journal_max_bytes="1MiB")
    full.note_transforms("r", ["unpack", "load"], waits=True)
    assert full.journal.last_seq() == last
    full.close()


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
    journal: Journal, emitter: Callable[[], Emitter], integration: str
) -> None:
    killed = emitter()
    killed.emit(event("r", "START", facets={"jobType": {"integration": integration}}))
    killed.end()
    assert looked(journal) == []


def test_a_fork_keeps_its_entries_as_a_program_of_its_own(home: Path) -> None:
    opened = opened_home(home)
    opened.emit(event("parents", "START"))
    if (pid := os.fork()) == 0:
        opened.emit(event("childs", "START"))
        os._exit(0)
    os.waitpid(pid, 0)
    opened.journal.mark(b"flush")
    own, forks, mark = (one.program for one in opened.journal.read(0))
    assert (own, forks != own, mark) == (str(this_program()), True, None)
    assert [one["run"]["runId"] for one in looked(opened.journal)] == ["childs"]
    opened.close()


def test_a_runner_waits_for_a_living_program_with_an_open_run_and_no_longer(
    journal: Journal, emitter: Callable[[], Emitter]
) -> None:
    program = emitter()
    program.emit(event("r", "START"))
    lease = locks.take(journal.home)
    assert lease is not None
    settings = Settings.load({"home": journal.home, "archive_enabled": False}, env={})
    looks = 0

    def killed_at_a_late_look() -> bool:
        nonlocal looks
        looks += 1
        if looks == 20:  # long after all else is done
            program.end()
        return False

    Runner(journal, settings).run(idle_s=0.0, blocked_s=60.0, until=killed_at_a_late_look)
    lease.release()
    assert looks >= 20
    assert len(looked(journal)) == 1


def test_a_program_is_noted_from_its_first_entry_on(journal: Journal) -> None:
    program = this_program()
    assert program is not None
    journal.append(Kind.OPENLINEAGE, event("before", "START"), program=str(program))
    assert looked(journal) == []
    assert set(journal.state("programs")) == {"upto"}, "nothing is followed"
    note_program(journal, program)
    journal.append(Kind.OPENLINEAGE, event("r", "START"), program=str(program))
    note_program(journal, program)
    runs = UnendedRuns(journal)
    runs.look(NOW_MS)
    assert runs.waits
    assert len(journal.state("programs", "run:")) == 1
