"""A collector follows Spark's event logs: what they say is told while they are written, once."""

from __future__ import annotations

import json
import os
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from calling import call
from logged import APPLICATION, EVENTS, FAILED, LINES, LOG, LOST, ROOT, RUN, Store
from manual_clock import ManualClock
from sayings import AT, ended, event_of, files, log_lines
from served import Collector, without_runner
from stores import new_bucket
from waiting import wait_until

from waybill.collector.event_logs import EventLogStatus
from waybill.facets import FinalState
from waybill.spark.event_logs import EventLogFollower
from waybill.transport import Journal
from waybill.transport.home import Home

END_MS = LOST.completed_ms
"""When the last execution of the log ended."""
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
WAIT_S = 60.0


class Followed:
    """A home, a folder of event logs, and a follower whose time a test sets."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.folder = folder
        self.clock = ManualClock(END_MS)
        self.restart()

    def restart(self) -> None:
        """Begin anew, as a collector does."""
        self.follower = EventLogFollower([str(self.folder)], clock=self.clock)

    def log(self, *lines: str, name: str = APPLICATION, changed_ms: int | None = None) -> Path:
        """Write a log, last changed now unless it is said when."""
        self.folder.mkdir(exist_ok=True)
        path = self.folder / name
        path.write_text("".join(f"{line}\n" for line in lines))
        changed_s = (self.clock.now_ms() if changed_ms is None else changed_ms) / 1000
        os.utime(path, (changed_s, changed_s))
        return path

    def look(self, *, after_ms: int = 0) -> EventLogStatus:
        """Have it look, so long after the last look; what the home knows of it then."""
        self.clock.move(after_ms / 1_000)
        with closing(Home.open(self.store.settings)) as home:
            self.follower.look(home)
            status = EventLogStatus.of(home.journal)
        assert status is not None
        return status

    def state_of(self, name: str) -> FinalState | None:
        record = self.store.records().get(f"file:/out/{name}")
        return None if record is None else record.final_state

    def entries(self) -> int:
        with closing(Journal(self.store.home)) as journal:
            return journal.last_seq()


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    return Followed(Store.with_events(tmp_path), tmp_path / "logs")


def test_what_a_log_says_is_told_once_whatever_it_is_called_and_whoever_follows(followed: Followed) -> None:
    path = followed.log(*LINES[:-1], name=f"{APPLICATION}.inprogress")
    status = followed.look()
    assert (status.corrected, followed.state_of("a")) == (1, FinalState.ERROR)
    assert (status.confirmed, followed.state_of("b")) == (0, FinalState.COMPLETE)
    assert followed.look(after_ms=2 * MINUTE_MS).confirmed == 1
    path.unlink()
    followed.log(*LINES)
    followed.look(after_ms=HOUR_MS)
    told = followed.entries()
    assert told == len(EVENTS) + 4, "two failures, a confirmation and the application's end"
    followed.restart()
    followed.log(*LINES)
    status = followed.look(after_ms=HOUR_MS)
    assert (status.corrected, status.confirmed, followed.entries()) == (2, 1, told)


def test_a_failure_whose_run_the_listener_may_still_tell_of_waits_for_it(followed: Followed) -> None:
    followed.log(*LINES)
    assert followed.look(after_ms=MINUTE_MS // 2).corrected == 1
    assert followed.state_of("c") is None
    late = RUN.replace("0001", "0005")
    followed.store.emit(event_of(late, "COMPLETE", LOST.completed_ms, output="/out/c", parent=ROOT))
    followed.look(after_ms=HOUR_MS)
    record = followed.store.records()["file:/out/c"]
    assert (record.did, record.final_state) == (late, FinalState.ERROR)


@pytest.mark.parametrize("is_ended", [False, True])
def test_a_failure_without_a_run_is_told_when_its_application_does_not_go_on(
    followed: Followed, *, is_ended: bool
) -> None:
    lines, name = (LINES, APPLICATION) if is_ended else (LINES[:-1], f"{APPLICATION}.inprogress")
    followed.clock.move(300)
    followed.log(*lines, name=name)
    followed.look()
    assert followed.state_of("c") is (FinalState.ERROR if is_ended else None)
    followed.look(after_ms=HOUR_MS)  # nothing was written for so long that the application must be gone
    assert followed.state_of("c") is FinalState.ERROR


@pytest.mark.parametrize("lines", [LINES, [*LINES[:2], LINES[-1]]], ids=["writes", "nothing"])
def test_the_end_of_an_application_is_inferred_once_the_listener_must_have_told_it(
    followed: Followed, lines: list[str]
) -> None:
    ended_ms = json.loads(LINES[-1])["Timestamp"]
    followed.clock.set_ms(ended_ms)
    followed.log(*lines)
    for after_ms, is_inferred in ((0, False), (MINUTE_MS // 2, False), (HOUR_MS, True), (HOUR_MS, True)):
        followed.look(after_ms=after_ms)
        with closing(Journal(followed.store.home)) as journal:
            ends = [one.body for one in journal.read(0) if b"waybill_inferred" in one.body]
        assert [json.loads(one)["run"]["runId"] for one in ends] == [ROOT] * is_inferred


def test_a_log_that_has_not_changed_is_not_read_again(followed: Followed) -> None:
    path = followed.log(*LINES)
    followed.look(after_ms=HOUR_MS)
    changed_s = path.stat().st_mtime
    path.write_bytes(b"?" * len(LOG))
    os.utime(path, (changed_s, changed_s))
    followed.restart()
    assert followed.look(after_ms=HOUR_MS).problems == {}
    followed.log("?")
    assert list(followed.look(after_ms=HOUR_MS).problems) == [str(path)]


def test_what_is_told_of_a_log_that_grows_is_only_what_is_new(followed: Followed) -> None:
    begin = log_lines(APPLICATION, FAILED, is_ended=False)
    followed.log(*begin)
    followed.look(after_ms=HOUR_MS)
    later_ms = AT[1] + HOUR_MS
    run = RUN.replace("0001", "0006")
    followed.store.emit(
        event_of(run, "COMPLETE", later_ms, output="/out/d", parent=RUN.replace("0001", "0000"))
    )
    later = ended(9, at=(later_ms - 40, later_ms), plan=files("/out/d"))
    followed.log(*begin, *log_lines(APPLICATION, later, is_ended=False)[2:])
    assert followed.look(after_ms=HOUR_MS).corrected == 2
    assert followed.state_of("d") is FinalState.ERROR


def test_an_application_whose_events_come_late_is_corrected_then(tmp_path: Path) -> None:
    followed = Followed(Store(tmp_path), tmp_path / "logs")
    followed.log(*LINES)
    assert followed.look(after_ms=2 * MINUTE_MS).corrected == 0
    followed.store.emit(*EVENTS)
    assert followed.look(after_ms=HOUR_MS).corrected == 2


def test_a_damaged_log_is_said_once_and_stops_no_other(
    followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = followed.log("{", name="app-1")
    strange = followed.log(LINES[1].replace('"Timestamp":', '"Timestamp":"x'), name="app-2")
    followed.log(*LINES, changed_ms=END_MS - HOUR_MS)
    for _ in range(3):
        status = followed.look(after_ms=HOUR_MS)
    assert (status.corrected, sorted(status.problems)) == (2, [str(damaged), str(strange)])
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 2
    damaged.unlink()
    assert sorted(followed.look(after_ms=HOUR_MS).problems) == [str(strange)]


def test_what_does_not_fit_into_one_look_is_done_by_the_next_ones(followed: Followed) -> None:
    """A hundred logs of other applications are as many as are compared at once."""
    for number in range(120):
        followed.log(*log_lines(f"app-{number}", FAILED), name=f"app-{number}")
    followed.log(*LINES, changed_ms=END_MS - 3 * DAY_MS)
    followed.follower = EventLogFollower([str(followed.folder)], every_s=0, clock=followed.clock)
    corrected = [followed.look(after_ms=MINUTE_MS).corrected for _ in range(8)]
    assert (corrected[0], corrected[-1]) == (0, 2), "the oldest comes last, and comes"


def test_a_folder_that_is_not_there_yet_is_a_problem_until_it_is(
    followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        assert list(followed.look().problems) == [str(followed.folder)]
    assert len(caplog.records) == 1
    followed.log(*LINES[:1])
    assert followed.look().problems == {}, "what is half written is none yet"
    followed.log(*LINES)
    status = followed.look(after_ms=2 * MINUTE_MS)
    assert (status.problems, status.corrected) == ({}, 2)


def test_a_kill_between_what_corrects_and_the_note_of_it_tells_nothing_twice(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = Journal.commit

    def kill(journal: Journal, name: str, **what: Any) -> None:  # noqa: ANN401 - whatever it is given
        if any(key.startswith("log:") for key in what.get("put") or {}):
            raise KeyboardInterrupt
        commit(journal, name, **what)

    followed.log(*LINES)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Journal, "commit", kill)
        followed.look(after_ms=HOUR_MS)
    assert followed.state_of("a") is FinalState.ERROR
    told = followed.entries()
    followed.restart()
    followed.look()
    assert (followed.entries(), followed.state_of("c")) == (told, FinalState.ERROR)


def figure(collector: Collector, name: str) -> int | None:
    lines = collector.get("/metrics").body.decode().splitlines()
    found = [line.rpartition(" ")[2] for line in lines if line.startswith(f"waybill_event_logs_{name} ")]
    return int(found[0]) if found else None


def test_one_of_a_collectors_processes_follows_and_all_of_them_tell(followed: Followed) -> None:
    missing = followed.folder.with_name("missing")
    followed.log(*LINES)
    follows = ("--event-logs-every-s", "1", "--event-logs", f"{followed.folder},{missing}", "--workers", "3")
    with without_runner(followed.store.home, *follows) as collector:
        wait_until(lambda: figure(collector, "corrected_total") == 2, WAIT_S)
        wait_until(lambda: figure(collector, "problems") == 1, WAIT_S)
        ready = collector.get("/health/ready")
        assert (ready.status, ready.json["problems"].keys()) == (200, {"event-logs"})
        assert str(missing) in ready.json["problems"]["event-logs"]
        assert collector.stop()[1].count(f"there is no event log {missing}") == 1
    assert followed.entries() == len(EVENTS) + 4


def test_a_history_server_is_no_place_to_follow(home: Path) -> None:
    refused = call("serve", "--home", home, "--event-logs", "http://history:18080")
    assert refused.returncode == 2
    assert "use `waybill spark catch-up` to query a History Server" in " ".join(refused.stderr.split())


def test_logs_in_an_object_store_are_caught_up_from_and_followed(
    followed: Followed, s3_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = new_bucket(s3_address, monkeypatch)
    url = bucket.url.replace("s3://", "s3a://")
    for place, says in ((url, f"no event log in {url}"), ("hdfs://name/logs", "not the URL of a supported")):
        done = followed.store.command(place)
        assert (done.returncode, says in " ".join(done.stderr.split())) == (2, True), done.stderr
    for number, lines in ((1, LINES[:5]), (2, LINES[5:])):
        path = f"eventlog_v2_{APPLICATION}/events_{number}_{APPLICATION}"
        bucket.put(path, "".join(f"{line}\n" for line in lines).encode())
    done = followed.store.command(url, "--json", "--dry-run")
    assert [json.loads(line)["output"] for line in done.stdout.splitlines()] == ["/out/a", "/out/c"], done
    clock = ManualClock(time.time_ns() // 1_000_000 + HOUR_MS)
    followed.follower = EventLogFollower([url], clock=clock)
    assert followed.look().corrected == 2
    assert followed.look().corrected == 2
