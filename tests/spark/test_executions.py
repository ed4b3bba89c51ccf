"""No failure of an execution is overlooked, though Spark's store has gaps."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest

from waybill.spark.tracking.executions import ABSENT_MAX, Executions

if TYPE_CHECKING:
    from conftest import Run

AT = (1_790_000_000_000, 1_790_000_001_000)


class Sequence(list[Any]):
    """A Scala sequence of Python objects."""

    def size(self) -> int:
        return len(self)

    def apply(self, place: int) -> Any:  # noqa: ANN401 - as Java has it
        return self[place]

    def isEmpty(self) -> bool:  # noqa: N802 - Scala's name
        return not self

    def head(self) -> Any:  # noqa: ANN401 - as Java has it
        return self[0]

    def last(self) -> Any:  # noqa: ANN401 - as above
        return self[-1]

    get = head

    def mkString(self, separator: str) -> str:  # noqa: N802 - as above
        return separator.join(map(str, self))


class Jobs(dict[int, str]):
    """A Scala map from the number of a job to its state."""

    def mkString(self, separator: str) -> str:  # noqa: N802 - as above
        return separator.join(f"{number} -> {state}" for number, state in self.items())

    def keys(self) -> Sequence:  # type: ignore[override]
        return Sequence(self)


FORGOTTEN = "forgotten"
"""An error of which not even the empty text of a success is left."""


class Store:
    """A status store: each execution is ended with an error, maybe an empty one, or open."""

    def __init__(self) -> None:
        self.errors: dict[int, str | None] = {}
        self.jobs: dict[int, Jobs] = {}
        self.begun_ms = AT[0]

    def executionsList(self) -> Sequence:  # noqa: N802 - as above
        return Sequence(map(self._execution, sorted(self.errors)))

    def execution(self, number: int) -> Sequence:
        return Sequence([self._execution(number)] if number in self.errors else [])

    def _execution(self, number: int) -> SimpleNamespace:
        error = self.errors[number]
        ended = Sequence([] if error is None else [SimpleNamespace(getTime=lambda: AT[1])])
        return SimpleNamespace(
            executionId=lambda: number,
            rootExecutionId=lambda: number,
            submissionTime=lambda: AT[0],
            completionTime=lambda: ended,
            errorMessage=lambda: Sequence([] if error in {None, FORGOTTEN} else [error]),
            jobs=lambda: self.jobs.get(number, Jobs()),
            physicalPlanDescription=lambda: "",
        )

    def job(self, _number: int) -> SimpleNamespace:
        begun = Sequence([SimpleNamespace(getTime=lambda: self.begun_ms)])
        return SimpleNamespace(submissionTime=lambda: begun)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def executions(store: Store) -> Executions:
    context = SimpleNamespace(applicationId=lambda: "local-1", statusStore=lambda: store)
    state = SimpleNamespace(statusStore=lambda: store)
    spark: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: context), _jvm=MagicMock()),
        _jsparkSession=SimpleNamespace(sharedState=lambda: state),
    )
    return Executions(spark)


def newly(executions: Executions) -> list[int]:
    return [execution.id for execution in executions.newly_ended()]


def test_an_execution_that_is_in_the_store_after_a_later_one_has_ended_is_not_overlooked(
    store: Store, executions: Executions
) -> None:
    store.errors = {4: "", 6: ""}
    assert newly(executions) == []
    store.errors[5] = "boom"
    assert newly(executions) == [5]
    assert newly(executions) == []


def test_an_execution_is_watched_until_it_has_ended(store: Store, executions: Executions) -> None:
    store.errors = {1: None, 2: ""}
    assert newly(executions) == []
    assert executions.are_open
    assert executions.may_have_failed(AT[0], AT[1], 0)
    assert executions.may_have_failed(None, AT[1], 0)
    assert not executions.may_have_failed(AT[0] + 6, AT[1], 5)
    store.errors[1] = "boom"
    assert newly(executions) == [1]
    assert not executions.are_open
    assert not executions.may_have_failed(AT[0], AT[1], 0)


def test_numbers_that_are_never_used_are_looked_for_in_bounded_number(
    store: Store, executions: Executions
) -> None:
    store.errors = {10_000: "", 20_000: ""}
    assert newly(executions) == []
    asked: list[int] = []
    found = store.execution
    store.execution = lambda number: asked.append(number) or found(number)  # type: ignore[func-returns-value,method-assign]
    assert newly(executions) == []
    assert asked == list(range(19_999, 19_999 - ABSENT_MAX, -1))


@pytest.mark.parametrize(("state", "begun_ms"), [("SUCCEEDED", AT[0]), ("FAILED", AT[1] + 1)])
def test_where_no_job_failed_while_it_ran_a_forgotten_outcome_is_not_known(
    store: Store, executions: Executions, state: str, begun_ms: int
) -> None:
    store.errors, store.jobs, store.begun_ms = {1: FORGOTTEN}, {1: Jobs({4: state})}, begun_ms
    assert newly(executions) == []
    assert executions.may_have_failed(0, AT[1], 0)


PROGRAM = """
import json
from waybill.spark.tracking.executions import Executions

spark = waybill.spark.session("forgotten", **SETTINGS, **LOCAL)
context = spark.sparkContext
context.setLogLevel("OFF")
executions = Executions(spark)
store = spark._jsparkSession.sharedState().statusStore()

def forget(name, expression):
    try:
        spark.range(5).selectExpr(expression).write.text(OUT + "/" + name)
    except Exception:
        pass
    number = store.executionsList().last().executionId()
    while store.execution(number).get().completionTime().isEmpty():
        executions.settle(60)
    while not store.execution(number).get().errorMessage().isEmpty():
        # As a job does that an adaptive plan begins too late.
        context.setLocalProperty("spark.sql.execution.id", str(number))
        context.parallelize([1]).count()
        context.setLocalProperty("spark.sql.execution.id", None)
        executions.settle(60)
    execution = store.execution(number).get()
    found = [ended.error for ended in executions.newly_ended()]
    ended_ms = execution.completionTime().get().getTime()
    return found, executions.may_have_failed(0, ended_ms, 0)

print(json.dumps([
    forget("failed", "if(id = 3, raise_error('boom'), 's') AS v"),
    forget("succeeded", "'s' AS v"),
]))
"""


@pytest.mark.spark_truth
def test_an_error_that_spark_has_forgotten_is_that_of_its_job(run: Run) -> None:
    ran = run(PROGRAM)
    assert ran.status == 0, ran.stderr
    failed, succeeded = json.loads(ran.stdout.splitlines()[-1])
    assert ["boom" in error for error in failed[0]] == [True]
    assert succeeded == [[], True]
    assert failed[1] is False
