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
from logged import APPLICATION, FAILED, GOOD, LINES, LOG, ROOT, RUN, Store
from sayings import AT, COLLECT, CTAS, START_MS, ended, event_of, files, log_lines

from waybill.facets import PRODUCER, FinalState
from waybill.spark.event_logs import EventLogError, LoggedApplication, find_logs, logs_of_server
from waybill.transport import Journal, Kind, flush

if TYPE_CHECKING:
    from waybill.spark.event_logs import CaughtUp
    from waybill.spark.tracking.executions import Execution


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.with_events(tmp_path)


def test_what_a_log_says_is_told_once(store: Store) -> None:
    before = store.records()
    assert {record.final_state for record in before.values()} == {FinalState.COMPLETE}
    caught_up = store.correct()
    records = store.records()
    assert {name: (one.final_state, one.annotations) for name, one in records.items()} == {
        "file:/out/a": (FinalState.ERROR, {"errorCause": "boom"}),
        "file:/out/b": (FinalState.COMPLETE, None),
        "file:/out/c": (FinalState.ERROR, {"errorCause": "lost", "run": "not known"}),
    }
    (lost,) = [one for one in caught_up.corrections if not one.is_run_known]
    assert (records["file:/out/a"].did, records["file:/out/c"].did) == (RUN, lost.run)
    assert (records["file:/out/c"].parent_did, lost.output) == (ROOT, "/out/c")
    (body,) = caught_up.confirmations
    confirmed = json.loads(body)["run"]
    assert (confirmed["runId"], confirmed["facets"]["waybill_evidence"]["source"]) == (GOOD, "event log")
    again = store.correct()
    assert (again.is_known, again.failed, again.events) == (True, 2, ())


def test_a_write_that_succeeded_without_a_run_becomes_a_record_of_its_own_once(store: Store) -> None:
    silent = ended(5, at=(AT[0] + 200, AT[1] + 200), plan=files("/out/d"), error="")
    query = ended(6, at=(AT[0] + 300, AT[1] + 300), plan=COLLECT, error="")
    store.correct(FAILED, silent, query)
    record = store.records()["file:/out/d"]
    assert (record.final_state, record.parent_did) == (FinalState.COMPLETE, ROOT)
    assert record.annotations == {"listener": "silent"}
    assert store.correct(FAILED, silent, query).events == ()


def test_what_an_execution_is_tagged_with_is_said_of_its_run_though_no_job_began(store: Store) -> None:
    tags = (
        "SparkConnect_OperationTag_User__Session_1",
        "SparkConnect_SessionTag_User__Tag_waybill:app=stock",
    )
    failed = ended(1, at=AT, plan=files("/out/a"), error="exists", job_tags=tags)
    succeeded = ended(2, at=(AT[0], AT[1] + 1), plan=files("/out/b"), error="", job_tags=tags)
    store.correct(failed, succeeded)
    records = store.records()
    assert records["file:/out/a"].annotations == {"errorCause": "exists", "app": "stock"}
    assert records["file:/out/b"].annotations == {"app": "stock"}


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("a file", "a file; caused by: it is torn"),
        ("thrown in await:", "java.lang.Error: a file; caused by: it is torn"),
    ],
)
def test_an_error_without_its_causes_has_those_of_the_job_that_failed(
    store: Store, error: str, cause: str
) -> None:
    lines = log_lines(APPLICATION, ended(1, at=AT, plan=files("/out/a"), error=error))
    log, job = store.log(), Path(__file__).with_name("failed_job.jsonl").read_text(encoding="utf-8")
    log.write_text("\n".join([*lines[:3], job.strip(), *lines[3:]]))
    store.catch_up(log)
    assert store.records()["file:/out/a"].annotations == {"errorCause": cause}


B_AT = (AT[0], AT[1] + 1)
IGNORES = ended(2, at=B_AT, plan=files("/out/b").replace("ErrorIfExists", "Ignore"), error="")
CREATES = ended(2, at=B_AT, plan=CTAS, error="")
WITHIN = ended(3, at=AT, plan=COLLECT, error="", within=2)


@pytest.mark.parametrize(
    ("executions", "says"),
    [([IGNORES], []), ([CREATES], ["FILTERED"]), ([CREATES, WITHIN], [""])],
    ids=["may have ignored what exists", "a table that exists", "a table with an execution within"],
)
def test_what_a_write_may_have_left_out_is_told_as_far_as_the_log_shows_it(
    store: Store, executions: list[Execution], says: list[str]
) -> None:
    told = store.correct(*executions).confirmations
    assert ["FILTERED" * (b"FILTERED" in body) for body in told] == says


def test_a_failure_is_told_of_a_run_whose_end_was_only_inferred(store: Store) -> None:
    inferred = json.loads(event_of(RUN, "ABORT", AT[1], name="orders.write", parent=ROOT))
    inferred["run"]["facets"]["waybill_inferred"] = {"reason": "its application has ended"}
    store.emit(json.dumps({**inferred, "producer": PRODUCER}).encode())
    store.correct()
    record = store.records()["file:/out/a"]
    assert (record.final_state, record.annotations) == (FinalState.ERROR, {"errorCause": "boom"})


def runs_ended(caught_up: CaughtUp) -> list[str]:
    """The runs of the application that were ended by inference."""
    ends = [json.loads(one) for one in caught_up.ends]
    assert {one["eventType"] for one in ends} <= {"ABORT"}
    return [one["run"]["runId"] for one in ends]


def test_an_application_whose_end_only_its_log_has_is_ended_by_inference_once(store: Store) -> None:
    assert "its end inferred" in store.command(store.log()).stderr
    with closing(Journal(store.home)) as journal:
        (inferred,) = [json.loads(one.body) for one in journal.read(0) if b"waybill_inferred" in one.body]
    assert (inferred["run"]["runId"], inferred["eventType"]) == (ROOT, "ABORT")
    reason = inferred["run"]["facets"]["waybill_inferred"]["reason"]
    assert reason == "its event log says that it has ended"
    assert store.correct().ends == ()


SECOND = ROOT.replace("0000", "0008")


@pytest.mark.parametrize(
    ("run", "kind", "at_ms", "producer", "ends"),
    [
        (ROOT, "COMPLETE", START_MS + 60_000, "https://example.org/listener", []),
        (ROOT, "FAIL", START_MS + 60_000, PRODUCER, []),
        (SECOND, "START", START_MS + 61_000, "https://example.org/listener", [ROOT]),
        (SECOND, "START", AT[0], "https://example.org/listener", [ROOT, SECOND]),
    ],
    ids=["its own end", "a failure of ours", "a later attempt's log is another", "of a later attempt"],
)
def test_the_end_of_an_application_ends_its_attempts_before_unless_their_ends_are_known(
    store: Store, run: str, kind: str, at_ms: int, producer: str, ends: list[str]
) -> None:
    told = json.loads(event_of(run, kind, at_ms, output=None, name="orders", application=APPLICATION))
    store.emit(json.dumps({**told, "producer": producer}).encode())
    assert runs_ended(store.correct()) == ends


def test_a_log_without_an_end_ends_nothing_for_the_application_may_be_idle(
    store: Store, tmp_path: Path
) -> None:
    log = tmp_path / f"{APPLICATION}.inprogress"
    log.write_text("\n".join(LINES[:-1]))
    assert store.catch_up(log).ends == ()


def test_what_is_in_the_archive_alone_counts_too_and_older_parts_of_it_are_not_read(store: Store) -> None:
    store.correct()
    flush(store.settings)
    with closing(Journal(store.home)) as journal:
        journal.prune(journal.last_seq(), time.time_ns() // 1_000_000 + 1000)
        assert {entry.kind for entry in journal.read(0, limit=100)} == {Kind.MARK}
    for hour, code in (("20240101", 0), ("20991231", 1)):
        folder = store.home / "events" / hour / "00"
        folder.mkdir(parents=True)
        (folder / f"{'0' * 16}-1-9.parquet").write_bytes(b"whoever reads this cannot go on")
        done = store.command(store.log(), "--json")
        assert (done.returncode, done.stdout) == (code, ""), done.stderr


def test_of_commands_within_each_other_none_is_told_twice(store: Store) -> None:
    outer = ended(7, at=(AT[0] - 5, AT[1] + 5), plan=CTAS, error="boom")
    inner = ended(8, at=AT, plan=files("/out/a"), within=7)
    assert [correction.run for correction in store.correct(outer, inner).corrections] == [RUN]
    assert store.correct(outer, inner).corrections == ()


def test_runs_of_an_earlier_attempt_are_not_those_of_this_one(store: Store) -> None:
    root, write = ROOT.replace("0000", "0009"), RUN.replace("0001", "0008")
    store.emit(
        event_of(root, "START", START_MS - 90_000, output=None, application=APPLICATION),
        event_of(write, "COMPLETE", START_MS - 80_000, job=3, output="/out/earlier", parent=root),
    )
    store.correct()
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


def test_a_folder_may_be_given_as_java_writes_it(store: Store) -> None:
    for url in (f"file:{store.log()}", f"file://{store.log()}"):
        assert [LoggedApplication.read(log).id for log in find_logs(url)] == [APPLICATION]


def test_a_log_with_more_than_may_be_read_is_an_error_unless_what_is_old_is_left_out(store: Store) -> None:
    (log,) = find_logs(store.log())
    chars_max = LoggedApplication.read(log).plan_chars // 2
    with pytest.raises(EventLogError, match="is too large to follow"):
        LoggedApplication.read(log, chars_max=chars_max)
    read = LoggedApplication.read(log, after_ms=AT[1] + 1, chars_max=chars_max)
    assert [execution.id for execution in read.executions] == [3]


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waybill.spark.event_logs.files._LINE_BYTES_MAX", 2**20)
    (tmp_path / "app.gz").write_bytes(gzip.compress(b"x" * (2**20 * 4), 1))
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
    store.log().rename(folder / APPLICATION)
    (folder / "other.lzf").write_bytes(b"?")
    dry, table = store.command(folder, "--dry-run"), store.command(folder, "--csv", "--dry-run")
    assert store.records()["file:/out/a"].final_state is FinalState.COMPLETE
    done = store.command(folder, "--json")
    assert (dry.returncode, done.returncode) == (1, 1), done.stderr
    rows = [
        [RUN, "orders.write", "/out/a", "boom"],
        ["not known", "orders.execute_insert_into_hadoop_fs_relation_command.out_c", "/out/c", "lost"],
    ]
    assert [line.split("\t") for line in dry.stdout.splitlines()][-2:] == rows
    assert [line.split(",") for line in table.stdout.splitlines()][-2:] == rows
    assert [json.loads(line)["is_run_known"] for line in done.stdout.splitlines()] == [True, False]
    assert f"{APPLICATION} (orders): 2 executions failed, 2 corrected" in done.stderr
    assert "other.lzf is compressed with lzf" in done.stderr
    assert store.records()["file:/out/a"].final_state is FinalState.ERROR


def test_a_place_without_logs_is_exit_code_2_and_then_nothing_is_corrected(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    for place, says in (("empty", "no event log in"), ("nowhere", "no event log")):
        done = store.command(store.log(), tmp_path / place)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"{says} {tmp_path / place}; give " in done.stderr
    assert store.records()["file:/out/a"].final_state is FinalState.COMPLETE


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
