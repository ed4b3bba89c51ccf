"""A failed write is never silent: it is its run's failure, or a record of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

import pytest
from sayings import AT, PLANS, ended, event_of, files

from waybill.facets import (
    AnnotationRule,
    FinalState,
    ProvenanceRecord,
    RunEvent,
    decode_event,
    fold,
    keep_annotations,
    observe,
    records_of,
)
from waybill.spark.tracking.executions import Executions
from waybill.spark.tracking.failure_watch import UNMATCHED_MAX, FailureWatch
from waybill.spark.tracking.observed_runs import ObservedRun

if TYPE_CHECKING:
    from waybill.spark.tracking.executions import Execution

RUN = "01a1fec3-768d-7069-a2a1-b2454eb72dad"
GOOD = RUN.replace("dad", "daf")
APPLICATION = ObservedRun("01a1fec3-0000-7069-a2a1-b2454eb72dad", "tests", "orders")


class Spark(Executions):
    """A Spark whose executions have ended as they are given; `settle` waits for `before_settled`."""

    def __init__(self, *ended: Execution, open_ms: int | None = None, unclear_ms: int | None = None) -> None:
        self.application_id = "local-1"
        self.executions = list(ended)
        self.before_settled: Callable[[], None] = lambda: None
        self.is_gone = False
        self._kept = None
        self._open_ms = [] if open_ms is None else [open_ms]
        self._unclear_ms = [] if unclear_ms is None else [unclear_ms]

    def settle(self, timeout_s: float) -> None:
        assert timeout_s > 0
        self.before_settled()

    def keep(self, failed: Collection[Execution], slack_ms: int) -> None:
        assert not self.is_gone
        assert failed or slack_ms

    def newly_ended(self) -> Iterator[Execution]:
        while self.executions and not self.is_gone:
            execution = self.executions.pop(0)
            if execution.error or execution.wrote:
                yield execution

    def succeeded_beside(self, failed: Collection[Execution], slack_ms: int) -> Iterator[Execution]:
        if self.is_gone:
            raise ConnectionError("no JVM")
        assert failed or slack_ms
        return iter(())


class Watched:
    """A watch, and what it reported: events as they go into the journal."""

    def __init__(self) -> None:
        self.events: list[RunEvent] = []
        self.said = threading.Event()
        self.watch = FailureWatch(self._emit, lambda: APPLICATION, looks_s=(0, 0))

    def _emit(self, body: bytes) -> None:
        event = decode_event(body)
        assert isinstance(event, RunEvent)
        self.events.append(event)
        self.said.set()

    def end(self, spark: Spark) -> list[ProvenanceRecord]:
        """The records at the end of the application."""
        self.watch.finish()
        self.watch.watch(spark)
        self.watch.finish_stopped()
        return fold(self.events, system_name="tests")


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_failed_write_without_a_run_is_a_record_of_its_own_at_the_end(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "waybill.spark"):
        (record,) = watched.end(Spark(ended(1, at=AT, plan=files("/out/a"), error="boom\nat a line")))
    assert record.final_state is FinalState.ERROR
    assert record.data_sink == "file:/out/a"
    assert record.transforms == ("orders.execute_insert_into_hadoop_fs_relation_command.out_a",)
    assert record.annotations == {"errorCause": "boom", "run": "not known"}
    (written,) = records_of(observe(watched.events[0], system_name="tests"))
    none_allowed = keep_annotations(written, AnnotationRule())
    assert none_allowed.annotations == record.annotations
    assert (record.system_name, record.parent_did) == ("tests", APPLICATION.run_id)
    assert "1 failed writes match none of the listener's runs" in caplog.text
    assert len(caplog.records) == 1


def decoded(body: bytes) -> RunEvent:
    event = decode_event(body)
    assert isinstance(event, RunEvent)
    return event


def test_a_failure_that_waited_for_its_run_is_given_up_while_the_application_goes_on(
    watched: Watched,
) -> None:
    spark = Spark(ended(1, at=AT))
    thread = threading.Thread(target=watched.watch.watch, args=(spark,))
    thread.start()
    watched.watch.observe(event_of(GOOD, "COMPLETE", AT[1] + 1000))
    assert watched.said.wait(30)
    watched.watch.finish()
    thread.join()
    records = fold(watched.events, system_name="tests")
    (record,) = [one for one in records if one.final_state is FinalState.ERROR]
    assert record.annotations == {"errorCause": "boom", "run": "not known"}


def test_of_more_failures_than_may_wait_none_is_silent(watched: Watched) -> None:
    failures = [ended(number, at=AT, plan=files(f"/out/w{number}")) for number in range(UNMATCHED_MAX + 300)]
    assert len(watched.end(Spark(*failures))) == UNMATCHED_MAX + 300


def test_failures_that_waited_when_the_jvm_went_away_are_records_of_their_own(watched: Watched) -> None:
    spark, gone = Spark(ended(1, at=AT)), threading.Event()

    def go() -> None:
        spark.is_gone = True
        gone.set()
        raise ConnectionError("no JVM")

    thread = threading.Thread(target=watched.watch.watch, args=(spark,))
    spark.before_settled = go
    thread.start()
    watched.watch.observe(event_of(GOOD, "COMPLETE", AT[1] + 1000))
    assert gone.wait(30)
    watched.watch.finish()
    thread.join()
    watched.watch.finish_stopped()
    (record,) = fold(watched.events, system_name="tests")
    assert record.final_state is FinalState.ERROR


def test_a_record_of_its_own_is_the_same_whoever_makes_it(watched: Watched) -> None:
    (one,) = watched.end(Spark(ended(1, at=AT)))
    (other,) = Watched().end(Spark(ended(1, at=AT)))
    assert one == other


def test_a_write_is_not_confirmed_where_an_unknown_failure_may_be_its(watched: Watched) -> None:
    watched.watch.observe(event_of(RUN, "COMPLETE", AT[1], output="/out/b"))
    later = RUN.replace("dad", "daf")
    watched.watch.observe(event_of(later, "COMPLETE", AT[1] + 1_000, output="/out/c"))
    records = watched.end(Spark(ended(1, at=AT, plan=files("/out/a"))))
    assert [record.did for record in records if record.final_state is FinalState.COMPLETE] == [later]
    assert RUN not in {record.did for record in records}
    assert len(records) == 2


def test_a_write_is_not_confirmed_where_spark_does_not_know_how_it_ended(watched: Watched) -> None:
    watched.watch.observe(event_of(RUN, "COMPLETE", AT[1]))
    assert watched.end(Spark(unclear_ms=AT[1])) == []


def test_a_failure_that_spark_notes_after_its_listener_has_settled_is_not_missed(watched: Watched) -> None:
    looks = iter([Spark(open_ms=AT[0]), Spark(open_ms=AT[0]), Spark(ended(1, at=AT))])
    spark = Spark()

    def look() -> Iterator[Execution]:
        now = next(looks, Spark())
        vars(spark).update(_open_ms=now._open_ms)  # noqa: SLF001 - stands for what a look finds
        return now.newly_ended()

    vars(spark).update(newly_ended=look)
    watched.watch.observe(event_of(RUN, "COMPLETE", AT[1]))
    assert [record.final_state for record in watched.end(spark)] == [FinalState.ERROR]


def test_a_write_that_the_listener_calls_failed_is_not_confirmed(watched: Watched) -> None:
    watched.watch.observe(event_of(RUN, "FAIL", AT[1]))
    watched.watch.observe(event_of(RUN, "COMPLETE", AT[1]))
    assert watched.end(Spark()) == []


def test_a_write_of_which_the_listener_said_nothing_is_a_record_with_what_its_plan_names(
    watched: Watched,
) -> None:
    (record,) = watched.end(Spark(ended(1, at=AT, plan=PLANS["adaptive sums"], error="", wrote=True)))
    assert (record.final_state, record.data_source, record.data_sink) == (
        FinalState.COMPLETE,
        "file:/in/orders",
        "file:/out/sums",
    )
    assert record.transforms == ("orders.execute_insert_into_hadoop_fs_relation_command.out_sums",)
    assert record.annotations == {"listener": "silent"}
    (derived,) = records_of(observe(watched.events[0], system_name="tests"))
    assert keep_annotations(derived, AnnotationRule()).annotations == record.annotations


def test_a_write_that_the_listener_may_have_reported_is_no_record_of_its_own(watched: Watched) -> None:
    writes = [ended(number, at=AT, error="", wrote=True) for number in (1, 2)]
    for run in (RUN, GOOD):
        watched.watch.observe(event_of(run, "COMPLETE", AT[1] + 2))
    assert {record.did for record in watched.end(Spark(*writes))} == {RUN, GOOD}


def test_a_write_that_names_no_place_is_a_record_without_a_sink_and_warned_of_once(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    plan = "== Physical Plan ==\nAppendData (2)\n\n\n(2) AppendData\nInput [1]: [v]\nArguments: x, mine\n\n"
    with caplog.at_level(logging.WARNING, "waybill.spark"):
        records = watched.end(
            Spark(*(ended(at, at=(AT[0], AT[1] + at), plan=plan, error="", wrote=True) for at in (1, 2)))
        )
    assert [record.data_sink for record in records] == [None, None]
    assert [one.getMessage() for one in caplog.records] == [
        "Spark does not say where AppendData writes; its records have no sink"
    ]


def test_a_batch_that_a_table_format_writes_in_a_query_of_its_own_is_one_record(watched: Watched) -> None:
    for run, (began_ms, ended_ms) in {RUN: AT, GOOD: (AT[0] + 9, AT[1] - 9)}.items():
        watched.watch.observe(event_of(run, "START", began_ms, output=None))
        watched.watch.observe(event_of(run, "COMPLETE", ended_ms, output="/out/stream"))
    watched.end(Spark())
    listener = [event_of(run, "COMPLETE", AT[1], output="/out/stream") for run in (RUN, GOOD)]
    (record,) = fold([*watched.events, *map(decoded, listener)], system_name="tests")
    assert record.did == RUN
