"""Which run a failed execution is, and when nobody can say."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given, strategies as st
from sayings import AT, COLLECT, CTAS, MERGE, START_MS, ended, event_of, files

from waybill.facets import RunEvent, decode_event
from waybill.spark.tracking.match_failures import match
from waybill.spark.tracking.observed_runs import ObservedRun, ObservedRuns

if TYPE_CHECKING:
    from waybill.spark.tracking.executions import Execution


def run(
    name: str,
    started_ms: int | None,
    ended_ms: int | None,
    *,
    output: str | None = "/out/a",
    jobs: Iterable[int] = (),
    is_reported: bool = False,
) -> ObservedRun:
    outputs = set() if output is None else {output}
    times_ms = {"started_ms": started_ms, "ended_ms": ended_ms}
    more = {"spark_jobs": set(jobs), "outputs": outputs, "is_reported": is_reported}
    return ObservedRun(name, "tests", "a job", **times_ms, **more)  # type: ignore[arg-type]


class Case(NamedTuple):
    """Runs and failures, and those that belong together.

    Attributes:
        found: the numbers of the failures, each with its run.
        beside: the executions that succeeded, known once the listener has said all.
    """

    runs: list[ObservedRun]
    failed: list[Execution]
    found: list[tuple[int, str]]
    beside: list[Execution] | None = None


FAILED = ended(1, at=AT)
WITHOUT_PATH = ended(1, at=AT, plan=CTAS)
BEGAN, ENDED = AT
TWO = [run(name, BEGAN, ENDED, output=f"/out/{name}") for name in "ab"]
THREE = [run(name, None, ENDED, output=None) for name in "abc"]
LATE = [run(name, None, ENDED + 2, output=f"/out/{name}") for name in "ab"]
TOGETHER = [ended(number, at=(BEGAN + number, ENDED), plan=CTAS) for number in range(3)]
FAILED_B = ended(1, at=AT, plan=files("/out/b"))

CASES = {
    "a job ties an execution to its run": Case(
        [run("a", BEGAN + 500, None, jobs=[7]), run("b", None, None, jobs=[8])],
        [ended(1, at=AT, jobs={6, 7})],
        [(1, "a")],
    ),
    "without the job's name, times and path do": Case(
        [run("a", None, ENDED)], [ended(1, at=AT, jobs={3})], [(1, "a")]
    ),
    "the times of both ends decide": Case(
        [run("a", *AT), run("b", BEGAN, ENDED + 1), run("c", BEGAN + 1, ENDED)], [FAILED], [(1, "a")]
    ),
    "a run that has not ended waits": Case([run("a", BEGAN, None)], [FAILED], []),
    "of the same times, the path decides": Case(TWO, [FAILED_B], [(1, "b")]),
    "for several, too": Case(TWO, [FAILED_B, ended(2, at=AT)], [(1, "b"), (2, "a")]),
    "a query is no run that wrote": Case(
        [run("good", None, ENDED, output="/out/good"), run("a query", None, ENDED, output=None)],
        [ended(1, at=AT, plan=COLLECT)],
        [(1, "a query")],
        [],
    ),
    "times alone do not decide at once": Case([run("a", *AT, output="/warehouse/t")], [WITHOUT_PATH], []),
    "but once the listener has said all": Case(
        [run("a", *AT, output="/warehouse/t")], [WITHOUT_PATH], [(1, "a")], []
    ),
    "ended together, all of them failed": Case(THREE, TOGETHER, [(0, "a"), (1, "b"), (2, "c")], []),
    "ended together, one may be another's": Case(THREE, TOGETHER[:2], [], []),
    "ended together, one may have succeeded": Case(
        THREE, TOGETHER, [], [ended(9, at=AT, plan=CTAS, error="")]
    ),
    "milliseconds apart, a path does not decide at once": Case(LATE, [FAILED], []),
    "but then, beside a success elsewhere": Case(
        LATE, [FAILED], [(1, "a")], [ended(2, at=AT, plan=files("/out/b"), error="")]
    ),
    "nor if they are further apart": Case(LATE, [ended(1, at=(BEGAN, ENDED - 4))], [], []),
    "where nothing decides, none is called failed": Case([run("a", *AT), run("b", *AT)], [FAILED], [], []),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_run_of_a_failure_is_the_one_that_the_evidence_decides(case: Case) -> None:
    matched = match(case.failed, case.runs, case.beside)
    assert sorted((failure.id, found.run_id) for failure, found in matched.pairs) == case.found


@pytest.mark.parametrize("plan", [files("/out/w10"), MERGE.format(path="/out/w10")])
@pytest.mark.parametrize(
    ("output", "is_found"),
    [("/out/w10", True), ("/out/w1", False), ("/out/w10/part", False), ("/w10", False), ("/out", False)],
)
def test_a_path_that_another_one_begins_or_ends_with_is_not_that_path(
    plan: str, output: str, *, is_found: bool
) -> None:
    matched = match([ended(1, at=AT, plan=plan)], [run("a", None, ENDED, output=output)])
    assert bool(matched.pairs) == is_found


@pytest.mark.parametrize("path", ["hdfs://name:9000/out/w10", "/out/w10/"])
def test_a_plan_names_its_path_with_or_without_a_host(path: str) -> None:
    plan = MERGE.format(path=path).replace("file:hdfs", "hdfs")
    assert match([ended(1, at=AT, plan=plan)], [run("a", None, ENDED, output="/out/w10")]).pairs


def test_the_runs_remembered_are_bounded_and_have_the_names_that_the_listener_learns_in_the_end() -> None:
    observed = ObservedRuns(runs_max=2)
    for name, kind in (("a", "START"), ("b", "START"), ("a", "COMPLETE"), ("c", "START")):
        event = decode_event(event_of(name, kind, BEGAN, name="orders" if kind == "COMPLETE" else "unknown"))
        assert isinstance(event, RunEvent)
        observed.observe(event)
    assert {name: one.name for name, one in observed.runs.items()} == {"a": "orders", "c": "unknown"}


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
