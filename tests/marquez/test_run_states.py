"""A finished run stays finished: what goes out after its terminal event is followed by that event again."""

from __future__ import annotations

import itertools
import uuid
from typing import TYPE_CHECKING

import pytest
import requests

from waybill.marquez import EventReader, dead_letters, reconcile, retry_dead_letters
from waybill.marquez.run_states import run_states

if TYPE_CHECKING:
    from delivering import Site, Worker


def test_many_late_events_in_view_are_followed_by_it_once(site: Site, worker: Worker) -> None:
    site.keep("run", 0, eventType="COMPLETE")
    for number in range(1, 6):
        site.keep("run", number)
    worker.run()
    assert site.numbers("run") == [0, 1, 2, 3, 4, 5, 0]


@pytest.mark.parametrize("lesser", ["COMPLETE", "ABORT", "complete"])
def test_a_failure_is_sent_again_after_a_lesser_end_as_spark_s_listener_sends_it(
    site: Site, lesser: str
) -> None:
    site.keep("run", 0, eventType="START")
    site.keep("run", 1, eventType="FAIL")
    site.keep("run", 2, eventType=lesser)
    site.worker().run()
    assert site.numbers("run") == [0, 1, 2, 1]
    site.keep("run", 3, eventType="COMPLETE")
    site.worker().run()
    assert site.numbers("run") == [0, 1, 2, 1, 3, 1]
    assert site.marquez.runs == {"run": "FAILED"}


@pytest.mark.parametrize(
    ("kinds", "sent", "state"),
    [
        # As Spark's listener reports a failed write, and a session corrects it.
        (["START", "FAIL", "COMPLETE", "FAIL"], [0, 1, 2, 3], "FAILED"),
        (["START", "FAIL", "RUNNING", "START"], [0, 1, 2, 3], "RUNNING"),
        (["START", "FAIL", "RUNNING", "START", "COMPLETE"], [0, 1, 2, 3, 4], "COMPLETED"),
    ],
)
def test_an_end_is_not_sent_again_if_a_later_event_in_view_makes_that_needless(
    site: Site, kinds: list[str], sent: list[int], state: str
) -> None:
    run = str(uuid.uuid4())
    for number, kind in enumerate(kinds):
        site.keep(run, number, eventType=kind, eventTime=MOMENTS[number])
    worker = site.worker()
    worker.run()
    assert (site.numbers(run), site.marquez.runs) == (sent, {run: state})
    assert worker.delivery.pending() == 0
    site.worker().run()
    assert site.numbers(run) == sent


def test_a_run_that_is_begun_again_is_in_the_state_of_its_last_attempt(site: Site) -> None:
    run = str(uuid.uuid4())
    states = []
    for number, kind in enumerate(("START", "FAIL", "START", "COMPLETE", "COMPLETE")):
        site.keep(run, number, eventType=kind, eventTime=MOMENTS[number])
        site.worker(draws=True).run()
        states.append(site.marquez.runs[run])
    assert states == ["RUNNING", "FAILED", "RUNNING", "COMPLETED", "COMPLETED"]
    assert site.numbers(run) == [0, 1, 2, 0, 3, 4]
    assert list(reconcile(site.journal, EventReader(site.url)).missing) == []


@pytest.mark.parametrize("steps", [*itertools.permutations((("START", 2), ("COMPLETE", 1)))])
def test_one_start_and_one_end_are_a_finished_run_whatever_their_clocks_say(
    site: Site, steps: list[tuple[str, int]]
) -> None:
    run = str(uuid.uuid4())
    for number, (kind, moment) in enumerate(steps):
        site.keep(run, number, eventType=kind, eventTime=MOMENTS[moment])
        site.worker(draws=True).run()
    assert site.marquez.runs[run] == "COMPLETED"
    site.keep(run, 2, eventType="RUNNING", eventTime=MOMENTS[3])
    site.worker(draws=True).run()
    assert site.marquez.runs[run] == "COMPLETED"
    assert list(reconcile(site.journal, EventReader(site.url)).missing) == []
    site.marquez.runs[run] = "RUNNING"
    assert list(reconcile(site.journal, EventReader(site.url)).missing) != []
    site.keep(run, 3, eventType="START", eventTime=MOMENTS[4])
    site.worker(draws=True).run()
    assert site.marquez.runs[run] == "RUNNING"
    assert list(reconcile(site.journal, EventReader(site.url)).missing) == []


def test_a_terminal_event_that_was_refused_is_not_sent_for_a_late_one(site: Site, worker: Worker) -> None:
    site.keep("run", 0, eventType="COMPLETE", producer=...)
    site.keep("run", 1)
    worker.run()
    assert site.numbers("run") == [1]
    assert len(dead_letters(site.journal)) == 1


def test_the_terminal_event_of_a_run_that_the_journal_let_go_of_is_missed_by_nobody(
    site: Site, worker: Worker
) -> None:
    site.keep("run", 0, eventType="COMPLETE")
    worker.run()
    last = site.keep("run", 1)
    site.journal.prune(last - 1, 2**62)
    worker.run()
    assert site.numbers("run") == [0, 1]
    assert worker.delivery.pending() == 0


def test_what_is_known_of_runs_goes_with_the_journal(site: Site, worker: Worker) -> None:
    site.keep("ended", 0, eventType="COMPLETE")
    site.keep("open", 0, eventType="START")
    last = site.keep("later", 0, eventType="COMPLETE")
    worker.run()
    rows = site.journal.state("marquez", "end:")
    assert len(rows) == 3
    site.journal.prune(last - 1, 2**62)
    (known,) = run_states(site.journal, "marquez").all().values()
    assert known.end is not None
    assert known.end.seq == last
    site.keep("ended", 1)
    worker.run()
    assert len(site.journal.state("marquez", "end:")) == 2, "what is delivered from now on is known"


INFERRED = {"runId": "run", "facets": {"waybill_inferred": {"reason": "the program that ran it is gone"}}}


def test_an_inferred_end_after_the_runs_own_is_followed_by_that_again(site: Site, worker: Worker) -> None:
    site.keep("run", 0, eventType="COMPLETE")
    worker.run()
    site.keep("run", 1, eventType="ABORT", run=INFERRED)
    worker.run()
    assert site.numbers("run") == [0, 1, 0]
    assert site.marquez.runs == {"run": "COMPLETED"}


def test_an_end_whose_repeat_was_needless_for_a_while_is_sent_again_all_the_same(
    site: Site, worker: Worker
) -> None:
    for number, kind in enumerate(["START", "COMPLETE", "RUNNING", "START", "ABORT"]):
        said = {"run": INFERRED} if kind == "ABORT" else {}
        site.keep("run", number, eventType=kind, eventTime=MOMENTS[number], **said)
    worker.run()
    assert site.numbers("run") == [0, 1, 2, 3, 4, 1]
    assert site.marquez.runs == {"run": "COMPLETED"}


def test_a_runs_own_end_that_is_retried_beats_an_inferred_one_of_a_higher_number(
    site: Site, worker: Worker
) -> None:
    site.marquez.fault_of = lambda body: "400" if b'"FAIL"' in body else None
    own = site.keep("run", 0, eventType="FAIL")
    site.keep("run", 1, eventType="ABORT", run=INFERRED)
    worker.run()
    assert site.numbers("run") == [1]
    site.marquez.fault_of = None
    retry_dead_letters(site.journal, [own])
    worker.run()
    site.keep("run", 2)
    worker.run()
    assert site.numbers("run") == [1, 0, 2, 0]
    assert site.marquez.runs == {"run": "FAILED"}


MOMENTS = [f"2026-01-01T00:00:{second:02}Z" for second in range(10)]


def shown_times(url: str, run: str) -> list[str | int]:
    """When Marquez shows that a run started and ended, and how long it took, in milliseconds."""
    shown = requests.get(f"{url}/api/v1/jobs/runs/{run}", timeout=60).json()
    return [shown[name] for name in ("startedAt", "endedAt", "durationMs")]


@pytest.mark.parametrize("between", [["RUNNING"] * 6, ["OTHER"], ["START", "RUNNING"], []], ids=len)
@pytest.mark.parametrize("end", ["COMPLETE", "FAIL"])
def test_a_run_began_at_its_first_event_whatever_came_between(
    site: Site, between: list[str], end: str
) -> None:
    run = str(uuid.uuid4())
    kinds = ["START", *between, end]
    for number, kind in enumerate(kinds):
        site.keep(run, number, eventType=kind, eventTime=MOMENTS[number])
    site.worker(draws=True).run()
    last = len(kinds) - 1
    again = [0] if between else []
    assert site.numbers(run) == [*range(last), *again, last]
    assert shown_times(site.url, run) == [MOMENTS[0], MOMENTS[last], last * 1000]


def test_a_late_event_after_the_end_moves_neither_start_nor_end(site: Site) -> None:
    run = str(uuid.uuid4())
    for number, kind in enumerate(("START", "COMPLETE", "RUNNING")):
        site.keep(run, number, eventType=kind, eventTime=MOMENTS[number])
        site.worker(draws=True).run()  # a runner of its own for each event
    assert site.numbers(run) == [0, 1, 2, 0, 1]
    assert shown_times(site.url, run) == [MOMENTS[0], MOMENTS[1], 1000]


def test_of_events_that_come_in_any_order_the_earliest_is_the_start(site: Site) -> None:
    run = str(uuid.uuid4())
    for number, (kind, at) in enumerate((("RUNNING", 2), ("COMPLETE", 4), ("START", 1), ("RUNNING", 3))):
        site.keep(run, number, eventType=kind, eventTime=MOMENTS[at])
    site.worker(draws=True).run()
    assert site.numbers(run) == [0, 1, 2, 3, 2, 1]
    assert shown_times(site.url, run) == [MOMENTS[1], MOMENTS[4], 3000]


def test_a_start_that_the_journal_let_go_of_is_told_from_the_end(site: Site) -> None:
    run = str(uuid.uuid4())
    last = [
        site.keep(run, number, eventType=kind, eventTime=MOMENTS[number])
        for number, kind in enumerate(("START", "RUNNING"))
    ][-1]
    worker = site.worker(draws=True)
    worker.run()
    site.journal.prune(last - 1, 2**62)
    error = {"_producer": "tests", "_schemaURL": "tests", "message": "torn"}
    site.keep(
        run, 2, eventType="FAIL", eventTime=MOMENTS[5], run={"runId": run, "facets": {"errorMessage": error}}
    )
    worker.run()
    assert shown_times(site.url, run) == [MOMENTS[0], MOMENTS[5], 5000]
    start, end = site.marquez.stored[-2:]
    assert (start["eventType"], end["eventType"]) == ("START", "FAIL")
    assert start["run"] == {"runId": run, "facets": {}}, "a start has no error"


def test_the_end_that_a_run_stated_counts_after_it_was_begun_again_and_given_up(site: Site) -> None:
    run = str(uuid.uuid4())
    inferred = {**INFERRED, "runId": run}
    steps = [("START", run), ("FAIL", run), ("START", run), ("ABORT", inferred)]
    for number, (kind, of) in enumerate(steps):
        said = {} if of == run else {"run": of}
        site.keep(run, number, eventType=kind, eventTime=MOMENTS[number], **said)
        site.worker(draws=True).run()
    assert site.marquez.runs[run] == "FAILED"
    site.marquez.runs[run] = "RUNNING"
    assert [one.seq for one in reconcile(site.journal, EventReader(site.url)).missing] == [2]
    assert [one.event_type for one in reconcile(site.journal, EventReader(site.url)).missing] == ["FAIL"]
