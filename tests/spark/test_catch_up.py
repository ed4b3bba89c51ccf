"""Failures that only Spark's event logs know are told afterwards, once."""

from __future__ import annotations

import functools
import gzip
import http.server
import json
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from logged import APPLICATION, EVENTS, FAILED, GOOD, LINES, LOG, ROOT, RUN, Store
from sayings import AT, COLLECT, CTAS, START_MS, ended, event_of, files, log_lines
from stores import new_bucket

from waybill.facets import PRODUCER, FinalState, RunEvent, decode_event
from waybill.spark.event_logs import EventLogError, LoggedApplication, find_logs, logs_of_server
from waybill.transport import Journal, Kind, flush
from waybill.transport.runner.unended import SETTLE_MS, UnendedRuns

if TYPE_CHECKING:
    from waybill.spark.tracking.executions import Execution


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.with_events(tmp_path)


def plain(path: Path) -> Path:
    path.write_bytes(LOG)
    return path


def test_a_write_that_failed_becomes_an_error_and_one_that_did_not_stays_complete(
    store: Store, tmp_path: Path
) -> None:
    assert store.records()["file:/out/a"].final_state is FinalState.COMPLETE
    store.catch_up(plain(tmp_path / APPLICATION))
    records = store.records()
    assert records["file:/out/a"].did == RUN
    assert records["file:/out/a"].final_state is FinalState.ERROR
    assert records["file:/out/a"].annotations == {"errorCause": "boom"}
    assert records["file:/out/b"].final_state is FinalState.COMPLETE


def test_a_failed_write_without_a_run_becomes_a_record_of_its_own(store: Store, tmp_path: Path) -> None:
    corrections = store.catch_up(plain(tmp_path / APPLICATION)).corrections
    (lost,) = [correction for correction in corrections if not correction.is_run_known]
    record = store.records()["file:/out/c"]
    assert (record.did, record.parent_did, lost.output) == (lost.run, ROOT, "/out/c")
    assert record.annotations == {"errorCause": "lost", "run": "not known"}


def test_a_write_that_succeeded_without_a_run_becomes_a_record_of_its_own_once(
    store: Store, tmp_path: Path
) -> None:
    log = tmp_path / APPLICATION
    silent = ended(5, at=(AT[0] + 200, AT[1] + 200), plan=files("/out/d"), error="")
    query = ended(6, at=(AT[0] + 300, AT[1] + 300), plan=COLLECT, error="")
    log.write_text("\n".join(log_lines(APPLICATION, FAILED, silent, query)))
    store.catch_up(log)
    record = store.records()["file:/out/d"]
    assert (record.final_state, record.parent_did) == (FinalState.COMPLETE, ROOT)
    assert record.annotations == {"listener": "silent"}
    count = len(store.all_records())
    assert store.catch_up(log).events == ()
    assert len(store.all_records()) == count


def test_what_an_execution_is_tagged_with_is_said_of_its_run_though_no_job_began(
    store: Store, tmp_path: Path
) -> None:
    tags = (
        "SparkConnect_OperationTag_User__Session_1",
        "SparkConnect_SessionTag_User__Tag_waybill:app=stock",
    )
    failed = ended(1, at=AT, plan=files("/out/a"), error="exists", job_tags=tags)
    succeeded = ended(2, at=(AT[0], AT[1] + 1), plan=files("/out/b"), error="", job_tags=tags)
    log = tmp_path / APPLICATION
    log.write_text("\n".join(log_lines(APPLICATION, failed, succeeded)))
    store.catch_up(log)
    records = store.records()
    assert records["file:/out/a"].annotations == {"errorCause": "exists", "app": "stock"}
    assert records["file:/out/b"].annotations == {"app": "stock"}


FAILED_JOB = [
    {
        "Event": "SparkListenerJobStart",
        "Job ID": 7,
        "Stage IDs": [9],
        "Properties": {"spark.sql.execution.id": "1"},
    },
    {
        "Event": "SparkListenerTaskEnd",
        "Stage ID": 9,
        "Task End Reason": {
            "Reason": "ExceptionFailure",
            "Full Stack Trace": "java.lang.Error: a file\n\tat x\nCaused by: it is torn",
        },
    },
    {
        "Event": "SparkListenerJobEnd",
        "Job ID": 7,
        "Job Result": {"Result": "JobFailed", "Exception": {"Message": "a file", "Stack Trace": []}},
    },
]


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("a file", "a file; caused by: it is torn"),
        ("thrown in await:", "java.lang.Error: a file; caused by: it is torn"),
    ],
)
def test_an_error_without_its_causes_has_those_of_the_job_that_failed(
    store: Store, tmp_path: Path, error: str, cause: str
) -> None:
    log, failed = tmp_path / APPLICATION, ended(1, at=AT, plan=files("/out/a"), error=error)
    lines = log_lines(APPLICATION, failed)
    job = [json.dumps(event, separators=(",", ":")) for event in FAILED_JOB]
    log.write_text("\n".join([*lines[:3], *job, *lines[3:]]))
    store.catch_up(log)
    assert store.records()["file:/out/a"].annotations == {"errorCause": cause}


def test_the_second_time_nothing_is_corrected(store: Store, tmp_path: Path) -> None:
    log = plain(tmp_path / APPLICATION)
    assert len(store.catch_up(log).corrections) == 2
    before = store.records()
    again = store.catch_up(log)
    assert (again.is_known, again.failed, again.corrections, again.confirmations) == (True, 2, (), ())
    assert store.records() == before


def test_a_write_that_the_log_confirms_is_confirmed(store: Store, tmp_path: Path) -> None:
    log = tmp_path / APPLICATION
    log.write_text("\n".join(log_lines(APPLICATION, FAILED)))
    assert store.catch_up(log).confirmations == ()
    (body,) = store.catch_up(plain(log)).confirmations
    event = decode_event(body)
    assert isinstance(event, RunEvent)
    assert event.run.facets is not None
    assert event.run.facets.evidence is not None
    assert (event.run.runId, event.run.facets.evidence.source) == (GOOD, "event log")


def test_a_write_that_may_have_ignored_what_exists_is_not_confirmed(store: Store, tmp_path: Path) -> None:
    plan = files("/out/b").replace("ErrorIfExists", "Ignore")
    log = tmp_path / APPLICATION
    log.write_text("\n".join(log_lines(APPLICATION, ended(2, at=(AT[0], AT[1] + 1), plan=plan, error=""))))
    assert store.catch_up(log).confirmations == ()


@pytest.mark.parametrize("within", [[], [ended(3, at=AT, plan=COLLECT, error="", within=2)]])
def test_a_table_that_exists_is_told_by_the_log_from_the_executions_within(
    store: Store, tmp_path: Path, within: list[Execution]
) -> None:
    log = tmp_path / APPLICATION
    one = ended(2, at=(AT[0], AT[1] + 1), plan=CTAS, error="")
    log.write_text("\n".join(log_lines(APPLICATION, one, *within)))
    (body,) = store.catch_up(log).confirmations
    assert (b"FILTERED" in body) is (not within)


def test_a_failure_is_told_of_a_run_whose_end_was_only_inferred(store: Store, tmp_path: Path) -> None:
    inferred = json.loads(event_of(RUN, "ABORT", AT[1], name="orders.write", parent=ROOT))
    inferred["run"]["facets"]["waybill_inferred"] = {"reason": "its application has ended"}
    store.emit(json.dumps({**inferred, "producer": PRODUCER}).encode())
    store.catch_up(plain(tmp_path / APPLICATION))
    record = store.records()["file:/out/a"]
    assert (record.final_state, record.annotations) == (FinalState.ERROR, {"errorCause": "boom"})


def inferred_ends(store: Store) -> list[tuple[str, str, str]]:
    """The run, the type and the reason of each inferred end in the journal."""
    with closing(Journal(store.home)) as journal:
        bodies = [json.loads(one.body) for one in journal.read(0) if b"waybill_inferred" in one.body]
    return [
        (one["run"]["runId"], one["eventType"], one["run"]["facets"]["waybill_inferred"]["reason"])
        for one in bodies
    ]


def test_an_application_whose_end_only_its_log_has_is_ended_by_inference_once(
    store: Store, tmp_path: Path
) -> None:
    log = plain(tmp_path / APPLICATION)
    assert "its end inferred" in store.command(log).stderr
    assert inferred_ends(store) == [(ROOT, "ABORT", "its event log says that it has ended")]
    assert store.catch_up(log).ends == ()


def test_the_runs_that_such_an_application_left_open_are_ended_too(tmp_path: Path) -> None:
    child = RUN.replace("0001", "0007")
    body = json.loads(event_of(child, "START", AT[0], output=None, parent=ROOT, application=APPLICATION))
    body["job"]["facets"]["jobType"] |= {"integration": "SPARK", "processingType": "BATCH"}
    begun = json.loads(EVENTS[0])
    begun["job"]["facets"]["jobType"] |= {"integration": "SPARK", "processingType": "NONE"}
    own = Store(tmp_path / "own")
    own.emit(json.dumps(begun).encode(), json.dumps(body).encode())
    own.catch_up(plain(tmp_path / APPLICATION))
    with closing(Journal(own.home)) as journal:
        runs = UnendedRuns(journal)
        for now_ms in (now := time.time_ns() // 1_000_000, now + SETTLE_MS + 1_000):
            while runs.look(now_ms):
                pass
    assert [(run, kind) for run, kind, _ in inferred_ends(own)] == [(ROOT, "ABORT"), (child, "ABORT")]


@pytest.mark.parametrize("is_known", ["its own end", "a failure of ours"])
def test_an_application_whose_end_is_known_is_not_ended_again(
    store: Store, tmp_path: Path, is_known: str
) -> None:
    kind, producer = (
        ("COMPLETE", "https://example.org/listener") if is_known == "its own end" else ("FAIL", PRODUCER)
    )
    told = json.loads(event_of(ROOT, kind, START_MS + 60_000, output=None, name="orders"))
    store.emit(json.dumps({**told, "producer": producer}).encode())
    assert store.catch_up(plain(tmp_path / APPLICATION)).ends == ()


def test_a_log_without_an_end_ends_nothing_for_the_application_may_be_idle(
    store: Store, tmp_path: Path
) -> None:
    log = tmp_path / f"{APPLICATION}.inprogress"
    log.write_text("\n".join(LINES[:-1]))
    assert store.catch_up(log).ends == ()


def test_the_end_of_a_later_attempt_shows_that_an_earlier_one_is_over_and_not_the_reverse(
    store: Store, tmp_path: Path
) -> None:
    second = ROOT.replace("0000", "0008")
    began_ms = START_MS + 61_000
    store.emit(event_of(second, "START", began_ms, output=None, name="orders", application=APPLICATION))
    assert [
        json.loads(one)["run"]["runId"] for one in store.catch_up(plain(tmp_path / APPLICATION)).ends
    ] == [ROOT]
    other = Store.with_events(tmp_path / "other")
    other.emit(event_of(second, "START", AT[0], output=None, name="orders", application=APPLICATION))
    ends = other.catch_up(tmp_path / APPLICATION).ends
    assert [json.loads(one)["run"]["runId"] for one in ends] == [ROOT, second]


def test_what_is_in_the_archive_alone_counts_too(store: Store, tmp_path: Path) -> None:
    log = plain(tmp_path / APPLICATION)
    store.catch_up(log)
    flush(store.settings)
    with closing(Journal(store.home)) as journal:
        journal.prune(journal.last_seq(), time.time_ns() // 1_000_000 + 1000)
        assert {entry.kind for entry in journal.read(0, limit=100)} == {Kind.MARK}
    assert store.catch_up(log).corrections == ()


def test_parts_of_the_archive_from_before_the_application_are_not_read(store: Store, tmp_path: Path) -> None:
    log = plain(tmp_path / APPLICATION)
    flush(store.settings)
    before, within = (store.home / "events" / hour / "00" for hour in ("20240101", "20991231"))
    before.mkdir(parents=True)
    (before / f"{'0' * 16}-1-9.parquet").write_bytes(b"whoever reads this cannot go on")
    done = store.command(log)
    assert (done.returncode, store.records()["file:/out/a"].final_state) == (0, FinalState.ERROR), done.stderr
    within.mkdir(parents=True)
    (within / f"{'0' * 16}-1-9.parquet").write_bytes(b"nor here")
    assert store.command(log).returncode == 1


def test_an_application_that_the_home_never_heard_of_is_left_out(store: Store, tmp_path: Path) -> None:
    log = tmp_path / "local-2"
    log.write_text("\n".join(log_lines("local-2", FAILED)))
    caught_up = store.catch_up(log)
    assert (caught_up.is_known, caught_up.failed, caught_up.corrections) == (False, 1, ())


def test_of_commands_within_each_other_none_is_told_twice(store: Store, tmp_path: Path) -> None:
    outer = ended(7, at=(AT[0] - 5, AT[1] + 5), plan=CTAS, error="boom")
    inner = ended(8, at=AT, plan=files("/out/a"), within=7)
    log = tmp_path / APPLICATION
    log.write_text("\n".join(log_lines(APPLICATION, outer, inner)))
    assert [correction.run for correction in store.catch_up(log).corrections] == [RUN]
    assert store.catch_up(log).corrections == ()


def test_runs_of_an_earlier_attempt_are_not_those_of_this_one(store: Store, tmp_path: Path) -> None:
    store.emit(
        event_of(
            ROOT.replace("0000", "0009"), "START", START_MS - 90_000, output=None, application=APPLICATION
        ),
        event_of(
            RUN.replace("0001", "0008"),
            "COMPLETE",
            START_MS - 80_000,
            job=3,
            output="/out/earlier",
            parent=ROOT.replace("0000", "0009"),
        ),
    )
    store.catch_up(plain(tmp_path / APPLICATION))
    records = store.records()
    assert records["file:/out/earlier"].final_state is FinalState.COMPLETE
    assert records["file:/out/a"].final_state is FinalState.ERROR


def zstd(path: Path, content: bytes) -> None:
    with pa.CompressedOutputStream(str(path), "zstd") as file:
        file.write(content)


def lz4(path: Path, content: bytes) -> None:
    """The blocks of lz4-java, the last but one of them stored as it is."""
    blocks = b""
    for start in range(0, len(content), 500):
        block, method = content[start : start + 500], 0x10
        if start // 500 % 2:
            stored, method = pa.Codec("lz4_raw").compress(block, asbytes=True), 0x20
        else:
            stored = block
        sizes = [len(stored), len(block), 0]
        blocks += b"LZ4Block" + bytes([method | 5]) + b"".join(n.to_bytes(4, "little") for n in sizes)
        blocks += stored
    path.write_bytes(blocks + b"LZ4Block" + bytes([0x15]) + bytes(12))


def rolling(path: Path, content: bytes) -> None:
    folder = path.with_name(f"eventlog_v2_{APPLICATION}")
    folder.mkdir()
    lines = content.splitlines(keepends=True)
    (folder / f"appstatus_{APPLICATION}").touch()
    for number, start in enumerate(range(0, len(lines), 2), 1):
        zstd(folder / f"events_{number}_{APPLICATION}.zstd", b"".join(lines[start : start + 2]))


def compacted(path: Path, content: bytes) -> None:
    folder = path.with_name(f"eventlog_v2_{APPLICATION}")
    folder.mkdir()
    lines = content.splitlines(keepends=True)
    (folder / f"events_1_{APPLICATION}").write_bytes(b"what the compacted file has")
    (folder / f"events_2_{APPLICATION}").write_bytes(b"the same")
    (folder / f"events_2_{APPLICATION}.compact").write_bytes(b"".join(lines[:4]))
    (folder / f"events_10_{APPLICATION}").write_bytes(b"".join(lines[6:]))
    (folder / f"events_3_{APPLICATION}").write_bytes(b"".join(lines[4:6]))


def zipped(path: Path, content: bytes) -> None:
    with zipfile.ZipFile(path.with_suffix(".zip"), "w") as file:
        file.writestr(f"eventlog_v2_x/events_1_{APPLICATION}.gz", gzip.compress(content))
        file.writestr("eventlog_v2_x/appstatus_x", b"")


def unfinished(path: Path, content: bytes) -> None:
    path.with_name(f"{APPLICATION}.inprogress").write_bytes(content.rpartition(b'{"Event"')[0] + b'{"Eve')


@pytest.mark.parametrize(
    "write",
    [
        lambda path, content: path.write_bytes(content),
        lambda path, content: zstd(path.with_suffix(".zstd"), content),
        lambda path, content: path.with_suffix(".gz").write_bytes(gzip.compress(content)),
        lambda path, content: lz4(path.with_suffix(".lz4"), content),
        rolling,
        compacted,
        zipped,
        unfinished,
    ],
    ids=["plain", "zstd", "gzip", "lz4", "rolling", "compacted", "zipped", "unfinished"],
)
def test_every_form_of_a_log_says_the_same(
    store: Store, tmp_path: Path, write: Callable[[Path, bytes], object]
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / ".hidden.crc").write_bytes(b"no log")
    write(folder / APPLICATION, LOG)
    place = next(folder.glob("*.zip"), folder)
    assert [one.output for one in store.catch_up(place).corrections] == ["/out/a", "/out/c"]


@pytest.mark.parametrize(
    "write",
    [lambda path, content: zstd(path.with_suffix(".zstd"), content), rolling, compacted, unfinished],
    ids=["zstd", "rolling", "compacted", "unfinished"],
)
def test_logs_in_an_object_store_say_the_same(
    store: Store,
    tmp_path: Path,
    s3_address: str,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[Path, bytes], object],
) -> None:
    bucket, folder = new_bucket(s3_address, monkeypatch), tmp_path / "logs"
    folder.mkdir()
    write(folder / APPLICATION, LOG)
    for path in folder.rglob("*"):
        if path.is_file():
            bucket.put(path.relative_to(folder).as_posix(), path.read_bytes())
    done = store.command(bucket.url.replace("s3://", "s3a://"), "--json")
    assert [json.loads(line)["output"] for line in done.stdout.splitlines()] == ["/out/a", "/out/c"], done


def test_an_object_store_without_logs_and_one_that_is_not_known_are_named(
    store: Store, s3_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = new_bucket(s3_address, monkeypatch)
    done = store.command(bucket.url)
    assert done.returncode == 2
    assert f"there is no event log in {bucket.url}" in " ".join(done.stderr.split())
    done = store.command("hdfs://name/logs")
    assert done.returncode == 2
    assert "hdfs://name/logs is not the URL of a supported object store" in " ".join(done.stderr.split())


def test_a_folder_may_be_given_as_java_writes_it(store: Store, tmp_path: Path) -> None:
    plain(tmp_path / APPLICATION)
    for url in (f"file:{tmp_path}/{APPLICATION}", f"file://{tmp_path}/{APPLICATION}"):
        assert [LoggedApplication.read(log).id for log in find_logs(url)] == [APPLICATION]
    assert store.command(f"file:{tmp_path}/{APPLICATION}").returncode == 0


def test_a_log_with_more_than_may_be_read_is_an_error_unless_what_is_old_is_left_out(tmp_path: Path) -> None:
    (log,) = find_logs(plain(tmp_path / APPLICATION))
    chars_max = LoggedApplication.read(log).plan_chars // 2
    with pytest.raises(EventLogError, match="is too large to follow"):
        LoggedApplication.read(log, chars_max=chars_max)
    read = LoggedApplication.read(log, after_ms=AT[1] + 1, chars_max=chars_max)
    assert [execution.id for execution in read.executions] == [3]


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    (tmp_path / "app.gz").write_bytes(gzip.compress(b"x" * (2**20 * 200), 1))
    (log,) = find_logs(tmp_path)
    with pytest.raises(EventLogError, match="a line does not end"):
        LoggedApplication.read(log)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.lzf", b"?", "compressed with lzf"),
        ("a.snappy", b"?", "compressed with snappy"),
        ("a.zstd", b"no zstd", "damaged"),
        ("a.lz4", b"LZ4Block" + bytes(5), "damaged"),
        ("a.gz", gzip.compress(LOG)[:-20], "damaged"),
        ("a", LOG[:400], "damaged"),
        ("a", b"a text\n", "not an event log"),
    ],
)
def test_a_log_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    (log,) = find_logs(tmp_path)
    with pytest.raises(EventLogError, match=says) as raised:
        LoggedApplication.read(log)
    assert str(tmp_path / name) in str(raised.value)


def test_the_command_shows_what_it_corrects_and_names_what_it_cannot_read(
    store: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    plain(folder / APPLICATION)
    (folder / "other.lzf").write_bytes(b"?")
    dry = store.command(folder, "--dry-run")
    assert store.records()["file:/out/a"].final_state is FinalState.COMPLETE
    done = store.command(folder, "--json")
    assert (dry.returncode, done.returncode) == (1, 1), done.stderr
    assert [line.split("\t") for line in dry.stdout.splitlines()][-2:] == [
        [RUN, "orders.write", "/out/a", "boom"],
        ["not known", "orders.execute_insert_into_hadoop_fs_relation_command.out_c", "/out/c", "lost"],
    ]
    assert [json.loads(line)["is_run_known"] for line in done.stdout.splitlines()] == [True, False]
    assert f"{APPLICATION} (orders): 2 executions failed, 2 corrected" in done.stderr
    assert "other.lzf is compressed with lzf" in done.stderr
    assert store.records()["file:/out/a"].final_state is FinalState.ERROR


def test_a_place_without_logs_is_exit_code_2_and_then_nothing_is_corrected(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    plain(tmp_path / APPLICATION)
    for place, says in (("empty", "no event log in"), ("nowhere", "no event log")):
        done = store.command(tmp_path / APPLICATION, tmp_path / place)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"{says} {tmp_path / place}; give " in done.stderr
    assert store.records()["file:/out/a"].final_state is FinalState.COMPLETE
    done = store.command(tmp_path / APPLICATION, "--csv", "--dry-run")
    assert done.stdout.splitlines()[-2:] == [
        f"{RUN},orders.write,/out/a,boom",
        "not known,orders.execute_insert_into_hadoop_fs_relation_command.out_c,/out/c,lost",
    ]


class Answers(http.server.SimpleHTTPRequestHandler):
    """A History Server whose answers are files."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def history(tmp_path: Path) -> Iterator[str]:
    """The address of a History Server with two applications: one long ago, one that still runs."""
    attempts = {"local-old": (START_MS - 10_000, True), APPLICATION: (-1, False)}
    applications = tmp_path / "server" / "api" / "v1" / "applications"
    for application in attempts:
        (applications / application / "logs").mkdir(parents=True)
        with zipfile.ZipFile(applications / application / "logs" / "index.html", "w") as file:
            file.writestr(application, "\n".join(log_lines(application, FAILED)))
    listed = [
        {"id": application, "attempts": [{"endTimeEpoch": ended_ms, "completed": is_completed}]}
        for application, (ended_ms, is_completed) in attempts.items()
    ]
    (applications / "index.html").write_text(json.dumps(listed))
    answers = functools.partial(Answers, directory=str(tmp_path / "server"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_a_history_server_gives_the_logs_of_what_ended_since_or_still_runs(
    history: str, tmp_path: Path
) -> None:
    read = [LoggedApplication.read(log).id for log in logs_of_server(history, tmp_path)]
    assert sorted(read) == [APPLICATION, "local-old"]
    (log,) = logs_of_server(history, tmp_path, START_MS)
    assert LoggedApplication.read(log).id == APPLICATION


def test_what_is_no_history_server_is_an_error(history: str, tmp_path: Path) -> None:
    with pytest.raises(EventLogError, match="does not answer"):
        list(logs_of_server(history + "api", tmp_path))
    (tmp_path / "server" / "api" / "v1" / "applications" / "index.html").write_text("hello")
    with pytest.raises(EventLogError, match="is not a History Server"):
        list(logs_of_server(history, tmp_path))
