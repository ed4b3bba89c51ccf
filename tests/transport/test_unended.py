"""Runs that nobody else ends: those of an ended Spark application, and those that are silent for long."""

from __future__ import annotations

import json
import time
from typing import Any, Final

import events
import pytest

from waybill.facets.spark_writes import APPLICATION_ENDED as REASON
from waybill.transport import Journal, JournalFullError, Kind
from waybill.transport.runner import unended
from waybill.transport.runner.unended import SETTLE_MS, UnendedRuns

DAY_MS: Final = 86_400_000
SPARK: Final = {"jobType": {"integration": "SPARK", "processingType": "BATCH", "jobType": "RDD_JOB"}}
APPLICATION: Final = {"jobType": {"integration": "SPARK", "processingType": "NONE", "jobType": "APPLICATION"}}


def event(run: str, kind: str, parent: str | None = None, facets: Any = SPARK, hour: int = 0) -> bytes:  # noqa: ANN401 - any JSON
    of = {"parent": {"run": {"runId": parent}, "job": {"namespace": "ns", "name": parent}}} if parent else {}
    job = {"namespace": "ns", "name": f"job of {run}", "facets": facets}
    return events.event(run, kind, f"2026-01-01T{hour:02}:00:00Z", facets=of, job=job)


class Home:
    """A journal as an HTTP sender fills it, and the runner that looks at it after a while."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def keep(self, *bodies: bytes) -> None:
        self.journal.append_many([(Kind.OPENLINEAGE, body, "tests") for body in bodies])

    def ended(self, after_ms: int = SETTLE_MS + 1_000, stale_ms: int | None = None) -> dict[str, str]:
        """Have a new runner look; the reason of each inferred end, by run."""
        self.look(UnendedRuns(self.journal, stale_ms), after_ms)
        return {
            one["run"]["runId"]: one["run"]["facets"]["waybill_inferred"]["reason"] for one in self.inferred()
        }

    def look(self, runs: UnendedRuns, after_ms: int = SETTLE_MS + 1_000) -> None:
        now_ms = time.time_ns() // 1_000_000
        while runs.look(now_ms):
            pass
        while runs.look(now_ms + after_ms):
            pass

    def inferred(self) -> list[dict[str, Any]]:
        bodies = [one.body for one in self.journal.read(0) if b"waybill_inferred" in one.body]
        return [json.loads(body) for body in bodies]


@pytest.fixture
def home(journal: Journal) -> Home:
    return Home(journal)


def test_a_run_of_an_event_changed_for_marquez_is_ended_under_its_own_name_and_parent(home: Home) -> None:
    changed = json.loads(event("child", "START", "app"))
    parent = changed["run"]["facets"].pop("parent")
    changed["run"]["facets"]["waybill_presented"] = {"jobName": "job of child", "parent": parent}
    changed["job"]["name"] = "app.job of child"
    home.keep(event("app", "START", facets=APPLICATION), json.dumps(changed).encode())
    home.keep(event("app", "COMPLETE", facets=APPLICATION))
    assert home.ended() == {"child": REASON}
    (end,) = home.inferred()
    assert end["job"]["name"] == "job of child"
    assert end["run"]["facets"]["parent"] == parent
    assert (end["inputs"], end["outputs"]) == ([], [])


def test_the_runs_of_an_ended_application_are_ended_and_no_others(home: Home) -> None:
    home.keep(
        event("app", "START", facets=APPLICATION),
        event("open", "START", "app"),
        event("done", "START", "app"),
        event("done", "COMPLETE", "app"),
        event("other", "START", "other-app"),
        event("python", "START", "app", facets={}),
        event("app", "COMPLETE", facets=APPLICATION),
    )
    assert home.ended(after_ms=SETTLE_MS // 2) == {}, "its last events may still come"
    assert home.ended() == {"open": REASON}
    (ended,) = home.inferred()
    assert (ended["eventType"], ended["job"]) == ("COMPLETE", {"namespace": "ns", "name": "job of open"})
    assert ended["run"]["facets"]["parent"]["run"]["runId"] == "app"
    assert home.ended() == {"open": REASON}
    assert len(home.inferred()) == 1, "only once"
    assert len(home.journal.state("programs", "run:")) == 1, "that of the other application"
    assert home.journal.state("programs", "ended:") == {}


@pytest.mark.parametrize(
    ("ends", "as_it_was"),
    [
        (["ABORT"], "ABORT"),
        (["FAIL", "COMPLETE"], "FAIL"),
        (["inferred", "COMPLETE"], "COMPLETE"),
        (["inferred"], "ABORT"),
    ],
)
def test_what_an_application_left_open_is_ended_as_it_was_and_when_it_was(
    home: Home, ends: list[str], as_it_was: str
) -> None:
    home.keep(event("app", "START", facets=APPLICATION), event("r", "START", "app"))
    for hour, kind in enumerate(ends, 1):
        body = json.loads(event("app", kind.replace("inferred", "ABORT"), facets=APPLICATION, hour=hour))
        if kind == "inferred":
            body["run"]["facets"]["waybill_inferred"] = {"reason": "the program that ran it is gone"}
        home.keep(json.dumps(body).encode())
    assert home.ended().get("r") == REASON
    end = home.inferred()[-1]
    hour = ends.index(as_it_was if as_it_was in ends else "inferred") + 1
    assert (end["eventType"], end["eventTime"]) == (as_it_was, f"2026-01-01T{hour:02}:00:00.000Z")


def test_the_end_of_another_parent_ends_nothing(home: Home) -> None:
    airflow = {"jobType": {"integration": "AIRFLOW", "processingType": "BATCH", "jobType": "TASK"}}
    home.keep(
        event("task", "START", facets=airflow),
        event("app", "START", "task", facets=APPLICATION),
        event("sql", "START", "task"),
        event("task", "COMPLETE", facets=airflow),
    )
    assert home.ended() == {}


def test_an_own_end_that_comes_right_after_the_application_s_counts(home: Home) -> None:
    home.keep(event("r", "START", "app"), event("app", "COMPLETE", facets=APPLICATION))
    runs = UnendedRuns(home.journal)
    home.look(runs, after_ms=0)
    assert runs.waits
    home.keep(event("r", "FAIL", "app"), event("r", "RUNNING", "app"))
    home.look(runs)
    assert not runs.waits
    assert home.inferred() == []


def test_a_run_that_is_begun_again_is_open_again(home: Home) -> None:
    home.keep(event("r", "START", "app", hour=1), event("r", "FAIL", "app", hour=2))
    runs = UnendedRuns(home.journal)
    home.look(runs, after_ms=0)
    home.keep(event("r", "START", "app", hour=2), event("r", "RUNNING", "app", hour=3))
    home.keep(event("app", "COMPLETE", facets=APPLICATION))
    home.look(runs)
    assert home.inferred() == [], "it ended; what came after is of its only attempt"
    home.keep(event("r", "START", "app", hour=4), event("app", "COMPLETE", facets=APPLICATION, hour=5))
    home.look(runs)
    (inferred,) = home.inferred()
    assert inferred["run"]["runId"] == "r"


def test_what_is_known_of_a_run_outlasts_a_disk_that_is_full_for_a_while(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.keep(event("r", "START", "app", hour=1))
    runs = UnendedRuns(home.journal)
    home.look(runs, after_ms=0)
    home.keep(event("r", "FAIL", "app", hour=2))
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "commit", full)
        with pytest.raises(JournalFullError):
            home.look(runs)
    home.look(runs, after_ms=0)
    home.keep(event("r", "START", "app", hour=3), event("r", "COMPLETE", "app", hour=2))
    home.keep(event("app", "COMPLETE", facets=APPLICATION, hour=4))
    home.look(runs)
    (inferred,) = home.inferred()
    assert inferred["run"]["runId"] == "r"


def full(*_: object, **__: object) -> None:
    """Fail as a commit on a full disk does."""
    raise JournalFullError("no space is left")


def test_a_late_start_within_that_time_counts(home: Home) -> None:
    home.keep(event("app", "COMPLETE", facets=APPLICATION), event("r", "START", "app"))
    assert home.ended() == {"r": REASON}


def test_an_application_that_is_ended_by_inference_ends_its_runs(home: Home) -> None:
    home.keep(event("app", "START", facets=APPLICATION), event("r", "START", "app"))
    assert home.ended() == {}
    home.keep(event("app", "ABORT", facets={}))
    assert home.ended() == {"r": REASON}


def test_what_is_open_is_known_to_the_next_runner(home: Home) -> None:
    home.keep(event("r", "START", "app"))
    assert home.ended() == {}
    home.keep(event("app", "FAIL", facets=APPLICATION))
    assert home.ended(after_ms=0) == {}
    home.journal.prune(home.journal.last_seq(), 2**62)
    assert home.ended() == {"r": REASON}


def test_the_runs_of_a_large_application_are_ended_piece_by_piece(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unended, "_ENDS_AT_ONCE", 10)
    monkeypatch.setattr(unended, "_OPEN_MAX", 25)
    home.keep(*(event(f"r{n}", "START", "app") for n in range(30)))
    home.keep(event("app", "COMPLETE", facets=APPLICATION))
    assert set(home.ended()) == {f"r{n}" for n in range(25)}


def test_a_clock_that_is_set_back_does_not_keep_them_open(home: Home) -> None:
    home.keep(event("r", "START", "app"), event("app", "COMPLETE", facets=APPLICATION))
    assert home.ended(after_ms=-DAY_MS) == {"r": REASON}


def test_odd_parents_and_damaged_entries_stop_nothing(home: Home) -> None:
    odd = json.loads(event("odd", "START", "app"))
    parents: tuple[Any, ...] = (5, [], {"run": {"runId": 7}}, {"run": None})
    for parent in parents:
        odd["run"]["facets"]["parent"] = parent
        home.keep(json.dumps(odd).encode())
    home.journal.append_many([(Kind.OPENLINEAGE, b"SPARK", "tests"), (Kind.PROVENANCE, b"SPARK", "tests")])
    home.keep(event("r", "START", "app"), event("app", "COMPLETE", facets=APPLICATION))
    assert home.ended() == {"r": REASON}


def test_a_run_that_is_silent_for_long_is_ended_only_if_the_setting_says_so(home: Home) -> None:
    home.keep(event("r", "START", facets={}), event("done", "START"), event("done", "COMPLETE"))
    assert home.ended(after_ms=2 * DAY_MS) == {}
    assert home.journal.state("programs", "run:") == {}
    assert home.ended(after_ms=DAY_MS // 2, stale_ms=DAY_MS) == {}
    assert home.ended(after_ms=DAY_MS + 60_000, stale_ms=DAY_MS)["r"].startswith(
        "nothing was heard of it since 2"
    )
    assert len(home.inferred()) == 1


def test_runs_followed_for_that_setting_are_forgotten_without_it(home: Home) -> None:
    home.keep(event("r", "START", facets={}), event("child", "START", "app"))
    assert home.ended(stale_ms=DAY_MS) == {}
    assert len(home.journal.state("programs", "run:")) == 2
    home.keep(event("app", "COMPLETE", facets=APPLICATION))
    assert home.ended() == {"child": REASON}
    known = set(home.journal.state("programs", "known:"))
    assert (len(known), set(home.journal.state("programs")) - known) == (3, {"upto"})
    home.journal.append(Kind.PROVENANCE, b"{}", "tests")
    home.journal.prune(home.journal.last_seq() - 1, 2**62)
    assert set(home.journal.state("programs")) == {"upto"}, "what is known of runs goes with their entries"
