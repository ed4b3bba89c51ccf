"""Which run a failed execution is, and when nobody can say."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st
from sayings import AT, COLLECT, CTAS, MERGE, START_MS, ended, event_of, files

from waybill.facets import RunEvent, decode_event
from waybill.spark.tracking.match_failures import match
from waybill.spark.tracking.observed_runs import RUNS_MAX, ObservedRun, ObservedRuns

if TYPE_CHECKING:
    from waybill.spark.tracking.executions import Execution


def observe(observed: ObservedRuns, run: str, kind: str, at_ms: int, **what: Any) -> None:  # noqa: ANN401 - as for `event_of`
    event = decode_event(event_of(run, kind, at_ms, **what))
    assert isinstance(event, RunEvent)
    observed.observe(event)


@pytest.fixture
def observed() -> ObservedRuns:
    return ObservedRuns()


def found(
    executions: list[Execution], observed: ObservedRuns, *, beside: Iterable[Execution] | None = None
) -> list[tuple[int, str]]:
    """The failures and their runs; `beside` are successes, known once the listener has said all."""
    matched = match(executions, observed.runs.values(), None if beside is None else list(beside))
    assert len(matched.pairs) + len(matched.left) <= len(executions)
    return sorted((execution.id, run.run_id) for execution, run in matched.pairs)


def test_a_job_ties_an_execution_to_its_run(observed: ObservedRuns) -> None:
    observe(observed, "a", "START", AT[0] + 500)
    observe(observed, "a", "RUNNING", AT[0] + 600, job=7)
    observe(observed, "b", "RUNNING", AT[0] + 600, job=8)
    assert found([ended(1, at=AT, jobs={6, 7})], observed) == [(1, "a")]


def test_an_execution_whose_jobs_the_listener_never_named_is_found_by_its_times_and_path(
    observed: ObservedRuns,
) -> None:
    observe(observed, "a", "COMPLETE", AT[1])
    assert found([ended(1, at=AT, jobs={3})], observed) == [(1, "a")]


def test_a_run_of_other_jobs_is_not_found_by_its_times(observed: ObservedRuns) -> None:
    observe(observed, "a", "START", AT[0], job=4)
    observe(observed, "a", "COMPLETE", AT[1])
    assert found([ended(1, at=AT, jobs={3})], observed, beside=()) == []


def test_a_run_that_is_reported_is_not_another_failures(observed: ObservedRuns) -> None:
    observe(observed, "a", "START", AT[0])
    observe(observed, "a", "COMPLETE", AT[1])
    observed.runs["a"].is_reported = True
    assert found([ended(1, at=AT)], observed, beside=()) == []


def test_the_times_of_both_ends_decide(observed: ObservedRuns) -> None:
    for run, ends in {"a": AT, "b": (AT[0], AT[1] + 1), "c": (AT[0] + 1, AT[1])}.items():
        observe(observed, run, "START", ends[0])
        observe(observed, run, "COMPLETE", ends[1])
    assert found([ended(1, at=AT)], observed) == [(1, "a")]


def test_a_run_with_a_job_is_no_run_without_one(observed: ObservedRuns) -> None:
    observe(observed, "a", "START", AT[0])
    observe(observed, "a", "RUNNING", AT[0] + 1, job=1)
    observe(observed, "a", "COMPLETE", AT[1])
    assert found([ended(1, at=AT)], observed) == []


def test_a_run_that_has_not_ended_waits(observed: ObservedRuns) -> None:
    observe(observed, "a", "START", AT[0])
    assert found([ended(1, at=AT)], observed) == []
    observe(observed, "a", "COMPLETE", AT[1])
    assert found([ended(1, at=AT)], observed) == [(1, "a")]


def test_the_path_decides_between_runs_of_the_same_times(observed: ObservedRuns) -> None:
    for run in "ab":
        observe(observed, run, "START", AT[0], output=f"/out/{run}")
        observe(observed, run, "COMPLETE", AT[1], output=f"/out/{run}")
    assert found([ended(1, at=AT, plan=files("/out/b"))], observed) == [(1, "b")]
    both = [ended(1, at=AT, plan=files("/out/b")), ended(2, at=AT, plan=files("/out/a"))]
    assert found(both, observed) == [(1, "b"), (2, "a")]


@pytest.mark.parametrize("plan", [files("/out/w10"), MERGE.format(path="/out/w10")])
@pytest.mark.parametrize("output", ["/out/w1", "/out/w10/part", "/w10", "/out"])
def test_a_path_that_another_one_begins_or_ends_with_is_not_that_path(
    observed: ObservedRuns, plan: str, output: str
) -> None:
    observe(observed, "a", "COMPLETE", AT[1], output=output)
    assert found([ended(1, at=AT, plan=plan)], observed) == []


@pytest.mark.parametrize("path", ["/out/w10", "hdfs://name:9000/out/w10", "/out/w10/"])
def test_a_plan_names_its_path_with_or_without_a_host(observed: ObservedRuns, path: str) -> None:
    observe(observed, "a", "COMPLETE", AT[1], output="/out/w10")
    plan = MERGE.format(path=path).replace("file:hdfs", "hdfs")
    assert found([ended(1, at=AT, plan=plan)], observed) == [(1, "a")]


def test_a_failure_is_not_given_to_a_run_that_wrote_to_elsewhere_in_the_same_time(
    observed: ObservedRuns,
) -> None:
    observe(observed, "good", "COMPLETE", AT[1], output="/out/good")
    assert found([ended(1, at=AT, plan=files("/out/bad"))], observed, beside=()) == []


def test_a_query_that_failed_is_no_run_that_wrote_something(observed: ObservedRuns) -> None:
    observe(observed, "good", "COMPLETE", AT[1], output="/out/good")
    observe(observed, "a query", "COMPLETE", AT[1], output=None)
    assert found([ended(1, at=AT, plan=COLLECT)], observed, beside=()) == [(1, "a query")]


def test_times_alone_decide_once_the_listener_has_said_all(observed: ObservedRuns) -> None:
    observe(observed, "a", "START", AT[0], output="/warehouse/t")
    observe(observed, "a", "COMPLETE", AT[1], output="/warehouse/t")
    failures = [ended(1, at=AT, plan=CTAS)]
    assert found(failures, observed) == []
    assert found(failures, observed, beside=()) == [(1, "a")]


def test_runs_without_a_start_that_ended_together_are_decided_where_all_of_them_failed(
    observed: ObservedRuns,
) -> None:
    for run in "abc":
        observe(observed, run, "COMPLETE", AT[1], output=None)
    failures = [ended(number, at=(AT[0] + number, AT[1]), plan=CTAS) for number in range(3)]
    assert [run for _, run in found(failures, observed, beside=())] == ["a", "b", "c"]
    assert found(failures[:2], observed, beside=()) == []
    other = ended(9, at=AT, plan=CTAS, error="")
    assert found(failures, observed, beside=[other]) == []


def test_a_path_decides_between_times_that_are_some_milliseconds_apart(observed: ObservedRuns) -> None:
    for run in "ab":
        observe(observed, run, "COMPLETE", AT[1] + 2, output=f"/out/{run}")
    failures = [ended(1, at=AT)]
    assert found(failures, observed) == []
    assert found(failures, observed, beside=[ended(2, at=AT, plan=files("/out/b"), error="")]) == [(1, "a")]
    assert found(failures, observed, beside=[ended(2, at=AT, error="")]) == []
    assert found([ended(1, at=(AT[0], AT[1] - 4))], observed, beside=()) == []


def test_where_nothing_decides_no_run_is_called_failed(observed: ObservedRuns) -> None:
    for run in "ab":
        observe(observed, run, "START", AT[0])
        observe(observed, run, "COMPLETE", AT[1])
    assert found([ended(1, at=AT)], observed, beside=()) == []


def test_a_command_without_a_start_is_found_by_its_end(observed: ObservedRuns) -> None:
    observe(observed, "a", "COMPLETE", AT[1])
    assert found([ended(1, at=AT)], observed) == [(1, "a")]


def test_the_runs_remembered_are_bounded_and_the_oldest_go_first(observed: ObservedRuns) -> None:
    for number in range(RUNS_MAX + 2):
        observe(observed, f"run {number}", "START", AT[0], job=number)
    assert len(observed.runs) == RUNS_MAX
    assert found([ended(1, at=AT, jobs={1}), ended(2, at=AT, jobs={2})], observed) == [(2, "run 2")]


def test_a_run_has_the_name_that_the_listener_learns_in_the_end(observed: ObservedRuns) -> None:
    observe(observed, "a", "START", AT[0], name="unknown")
    observe(observed, "a", "COMPLETE", AT[1], name="orders")
    assert observed.runs["a"].name == "orders"


class World:
    """Executions, and what the listener says of them: of some nothing, only the end, or no job."""

    def __init__(self, chance: random.Random) -> None:
        self.executions: list[Execution] = []
        self.runs: list[ObservedRun] = []
        self.owner: dict[str, Execution] = {}
        for number in range(chance.randint(1, 12)):
            path = f"/out/w{number}"
            plan = chance.choice([files(path), MERGE.format(path=path), CTAS, COLLECT])
            at = (START_MS + chance.randint(0, 6), START_MS + chance.randint(10, 16))
            jobs = {number} if chance.random() < 0.7 else set[int]()
            error = "boom" if chance.random() < 0.6 else ""
            execution = ended(number, at=at, jobs=jobs, plan=plan, error=error)
            self.executions.append(execution)
            if chance.random() < 0.2:
                continue
            run = ObservedRun(f"{chance.getrandbits(32)}-{number}", "tests", "a job", ended_ms=at[1])
            if plan not in {COLLECT, CTAS} or (plan is CTAS and chance.random() < 0.5):
                run.outputs.add(path)
            if chance.random() < 0.5:
                run.started_ms = at[0]
                run.ended_ms = at[1] + chance.choice([0, 0, 0, 1, 2])
            if jobs and chance.random() < 0.4:
                run.spark_jobs |= jobs
            run.is_reported = bool(error) and chance.random() < 0.1
            self.runs.append(run)
            self.owner[run.run_id] = execution

    def matched(self, *, settled: bool, chance: random.Random | None = None) -> set[tuple[int, str]]:
        failed = [execution for execution in self.executions if execution.error]
        succeeded = [execution for execution in self.executions if not execution.error]
        runs = list(self.runs)
        if chance is not None:
            chance.shuffle(failed)
            chance.shuffle(succeeded)
            chance.shuffle(runs)
        pairs, left = match(failed, runs, succeeded if settled else None)
        assert (
            len({failure.id for failure, _ in pairs}) == len({run.run_id for _, run in pairs}) == len(pairs)
        )
        assert {failure.id for failure, _ in pairs}.isdisjoint(failure.id for failure in left)
        return {(failure.id, run.run_id) for failure, run in pairs}


WORLDS = st.randoms(use_true_random=False).map(World)


@given(world=WORLDS, settled=st.booleans(), chance=st.randoms(use_true_random=False))
def test_neither_the_order_of_failures_nor_that_of_runs_matters(
    *, world: World, settled: bool, chance: random.Random
) -> None:
    assert world.matched(settled=settled) == world.matched(settled=settled, chance=chance)


@given(WORLDS)
def test_no_run_whose_execution_succeeded_is_called_failed(world: World) -> None:
    assert [pair for pair in world.matched(settled=True) if not world.owner[pair[1]].error] == []


@given(world=WORLDS, settled=st.booleans())
def test_a_run_that_names_its_jobs_is_only_their_executions(*, world: World, settled: bool) -> None:
    named = {run.run_id for run in world.runs if run.spark_jobs}
    pairs = [pair for pair in world.matched(settled=settled) if pair[1] in named]
    assert all(world.owner[run_id].id == number for number, run_id in pairs)


@given(world=WORLDS, settled=st.booleans())
def test_a_run_that_is_reported_is_never_taken(*, world: World, settled: bool) -> None:
    reported = {run.run_id for run in world.runs if run.is_reported}
    assert reported.isdisjoint(run_id for _, run_id in world.matched(settled=settled))


@given(WORLDS)
def test_what_is_told_before_the_listener_has_said_all_still_holds_afterwards(world: World) -> None:
    assert world.matched(settled=False) <= world.matched(settled=True)
