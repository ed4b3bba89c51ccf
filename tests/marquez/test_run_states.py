"""A finished run stays finished: what goes out after its terminal event is followed by that event again."""

from __future__ import annotations

import itertools
import uuid
from typing import TYPE_CHECKING, NamedTuple

import pytest
import requests

from waybill.marquez import EventReader, dead_letters, reconcile, retry_dead_letters
from waybill.marquez.run_states import run_states

if TYPE_CHECKING:
    from delivering import Site

KINDS = {
    "S": "START",
    "R": "RUNNING",
    "O": "OTHER",
    "C": "COMPLETE",
    "c": "complete",
    "F": "FAIL",
    "A": "ABORT",
    "I": "ABORT",
}
"""The types of events by one letter; `I` is an end that was inferred."""
MOMENTS = [f"2026-01-01T00:00:{second:02}Z" for second in range(10)]
INFERRED = {"waybill_inferred": {"reason": "the program that ran it is gone"}}


@pytest.fixture
def run() -> str:
    return str(uuid.uuid4())


def tell(site: Site, run: str, number: int, letter: str, at: int | None = None) -> int:
    """Accept an event of the run; what is not told happens in the order of its number."""
    said = {"run": {"runId": run, "facets": INFERRED}} if letter == "I" else {}
    moment = MOMENTS[number if at is None else at]
    return site.keep(run, number, eventType=KINDS[letter], eventTime=moment, **said)


def shown_times(url: str, run: str) -> list[str | int]:
    """When Marquez shows that a run started and ended, and how long it took, in milliseconds."""
    shown = requests.get(f"{url}/api/v1/jobs/runs/{run}", timeout=60).json()
    return [shown[name] for name in ("startedAt", "endedAt", "durationMs")]


@pytest.mark.parametrize(
    ("letters", "sent", "state"),
    [
        pytest.param("CRRRR", [0, 1, 2, 3, 4, 0], "COMPLETED", id="late events, once"),
        pytest.param("SFC", [0, 1, 2, 1], "FAILED", id="a lesser end, as Spark's listener tells it"),
        pytest.param("SFc", [0, 1, 2, 1], "FAILED", id="whatever its case"),
        pytest.param("SFA", [0, 1, 2, 1], "FAILED", id="another lesser end"),
        pytest.param("SFCF", [0, 1, 2, 3], "FAILED", id="which a session corrects"),
        pytest.param("SFRS", [0, 1, 2, 3], "RUNNING", id="it is begun again"),
        pytest.param("SFRSC", [0, 1, 2, 3, 4], "COMPLETED", id="and ends again"),
        pytest.param("CI", [0, 1, 0], "COMPLETED", id="an inferred end after its own"),
        pytest.param("SCRSI", [0, 1, 2, 3, 4, 1], "COMPLETED", id="and that after it was begun again"),
    ],
)
def test_an_end_is_sent_again_where_what_comes_later_in_view_needs_that(
    site: Site, run: str, letters: str, sent: list[int], state: str
) -> None:
    for number, letter in enumerate(letters):
        tell(site, run, number, letter)
    assert site.deliver().delivery.pending() == 0
    assert (site.numbers(run), site.marquez.runs) == (sent, {run: state})
    site.deliver()
    assert site.numbers(run) == sent


def test_a_run_that_is_begun_again_is_in_the_state_of_its_last_attempt(site: Site, run: str) -> None:
    states = []
    for number, letter in enumerate("SFSCC"):
        tell(site, run, number, letter)
        site.deliver(draws=True)
        states.append(site.marquez.runs[run])
    assert states == ["RUNNING", "FAILED", "RUNNING", "COMPLETED", "COMPLETED"]
    assert site.numbers(run) == [0, 1, 2, 0, 3, 4]
    assert list(reconcile(site.journal, EventReader(site.url)).missing) == []


@pytest.mark.parametrize("steps", [*itertools.permutations((("S", 2), ("C", 1)))])
def test_one_start_and_one_end_are_a_finished_run_whatever_their_clocks_say(
    site: Site, run: str, steps: list[tuple[str, int]]
) -> None:
    for number, (letter, moment) in enumerate([*steps, ("R", 3)]):
        tell(site, run, number, letter, moment)
        site.deliver(draws=True)
    assert site.marquez.runs[run] == "COMPLETED"
    assert list(reconcile(site.journal, EventReader(site.url)).missing) == []
    site.marquez.runs[run] = "RUNNING"
    assert list(reconcile(site.journal, EventReader(site.url)).missing) != []
    tell(site, run, 3, "S", 4)
    site.deliver(draws=True)
    assert site.marquez.runs[run] == "RUNNING"
    assert list(reconcile(site.journal, EventReader(site.url)).missing) == []


def test_what_is_known_of_runs_goes_with_the_journal(site: Site) -> None:
    for ended, letter in (("ended", "C"), ("open", "S"), ("later", "C")):
        last = tell(site, ended, 0, letter)
    worker = site.deliver()
    assert len(site.journal.state("marquez", "end:")) == 3
    site.journal.prune(last - 1, 2**62)
    (known,) = run_states(site.journal, "marquez").all().values()
    assert known.end is not None
    assert known.end.seq == last
    tell(site, "ended", 1, "R")
    worker.run()
    assert site.numbers("ended") == [0, 1]
    assert len(site.journal.state("marquez", "end:")) == 2, "what is delivered from now on is known"


def test_a_runs_own_end_that_is_retried_beats_an_inferred_one_of_a_higher_number(site: Site) -> None:
    site.marquez.fault_of = lambda body: "400" if b'"FAIL"' in body else None
    own = tell(site, "run", 0, "F")
    tell(site, "run", 1, "I")
    worker = site.deliver()
    assert ([one.seq for one in dead_letters(site.journal)], site.numbers("run")) == ([own], [1])
    site.marquez.fault_of = None
    retry_dead_letters(site.journal, [own])
    worker.run()
    tell(site, "run", 2, "R")
    worker.run()
    assert site.numbers("run") == [1, 0, 2, 0]
    assert site.marquez.runs == {"run": "FAILED"}


class Timed(NamedTuple):
    """The events of a run, each with its second, the numbers that are sent, and the seconds shown."""

    events: list[tuple[str, int]]
    sent: list[int]
    began: int
    ended: int


@pytest.mark.parametrize(
    "timed",
    [
        pytest.param(Timed([("S", 0), ("C", 1)], [0, 1], 0, 1), id="nothing between"),
        pytest.param(Timed([("S", 0), ("O", 1), ("F", 2)], [0, 1, 0, 2], 0, 2), id="another event"),
        pytest.param(
            Timed([("S", 0), ("S", 1), ("R", 2), ("R", 3), ("C", 4)], [0, 1, 2, 3, 0, 4], 0, 4), id="many"
        ),
        pytest.param(
            Timed([("R", 2), ("C", 4), ("S", 1), ("R", 3)], [0, 1, 2, 3, 2, 1], 1, 4), id="in any order"
        ),
    ],
)
def test_a_run_began_at_its_earliest_event_whatever_came_between(site: Site, run: str, timed: Timed) -> None:
    for number, (letter, at) in enumerate(timed.events):
        tell(site, run, number, letter, at)
    site.deliver(draws=True)
    assert site.numbers(run) == timed.sent
    took_ms = (timed.ended - timed.began) * 1_000
    assert shown_times(site.url, run) == [MOMENTS[timed.began], MOMENTS[timed.ended], took_ms]


def test_a_late_event_after_the_end_moves_neither_start_nor_end(site: Site, run: str) -> None:
    for number, letter in enumerate("SCR"):
        tell(site, run, number, letter)
        site.deliver(draws=True)  # a runner of its own for each event
    assert site.numbers(run) == [0, 1, 2, 0, 1]
    assert shown_times(site.url, run) == [MOMENTS[0], MOMENTS[1], 1000]


def test_a_start_that_the_journal_let_go_of_is_told_from_the_end(site: Site, run: str) -> None:
    tell(site, run, 0, "S")
    last = tell(site, run, 1, "R")
    worker = site.deliver(draws=True)
    site.journal.prune(last - 1, 2**62)
    error = {"_producer": "tests", "_schemaURL": "tests", "message": "torn"}
    said = {"run": {"runId": run, "facets": {"errorMessage": error}}}
    site.keep(run, 2, eventType="FAIL", eventTime=MOMENTS[5], **said)
    worker.run()
    assert shown_times(site.url, run) == [MOMENTS[0], MOMENTS[5], 5000]
    start, end = site.marquez.stored[-2:]
    assert (start["eventType"], end["eventType"]) == ("START", "FAIL")
    assert start["run"] == {"runId": run, "facets": {}}, "a start has no error"


def test_the_end_that_a_run_stated_counts_after_it_was_begun_again_and_given_up(site: Site, run: str) -> None:
    for number, letter in enumerate("SFSI"):
        tell(site, run, number, letter)
        site.deliver(draws=True)
    assert site.marquez.runs[run] == "FAILED"
    site.marquez.runs[run] = "RUNNING"
    (missing,) = reconcile(site.journal, EventReader(site.url)).missing
    assert (missing.seq, missing.event_type) == (2, "FAIL")
