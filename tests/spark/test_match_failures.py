"""Which run a failed execution is, and when nobody can say."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from waybill.spark.tracking.executions import Failed
from waybill.spark.tracking.match_failures import match_failure
from waybill.spark.tracking.observed_runs import RUNS_MAX, ObservedRuns

START_MS = 1_790_000_000_000


def instant(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


def observe(
    observed: ObservedRuns,
    run: str,
    kind: str,
    at_ms: int,
    *,
    job: int | None = None,
    output: str = "/out/a",
    name: str = "a job",
) -> None:
    facets = {} if job is None else {"spark_jobDetails": {"jobId": job}}
    event = {
        "eventTime": instant(at_ms),
        "eventType": kind,
        "run": {"runId": run, "facets": facets},
        "job": {"namespace": "tests", "name": name},
        "producer": "https://example.org/listener",
        "outputs": [{"namespace": "file", "name": output}],
    }
    observed.observe(json.dumps(event).encode())


def failed(number: int, *, at: tuple[int, int], jobs: set[int] | None = None, plan: str = "/out/a") -> Failed:
    return Failed(
        id=number,
        submitted_ms=at[0],
        completed_ms=at[1],
        spark_jobs=frozenset(jobs or ()),
        error="boom",
        plan=f"Arguments: file:{plan}, false, Parquet",
    )


AT = (START_MS, START_MS + 40)


@pytest.fixture
def observed() -> ObservedRuns:
    return ObservedRuns()


def found(executions: list[Failed], observed: ObservedRuns) -> list[tuple[int, str]]:
    return sorted((execution.id, run.run_id) for execution, run in match_failure(executions, observed))


def test_a_job_ties_an_execution_to_its_run(observed: ObservedRuns) -> None:
    observe(observed, "a", "START", AT[0] + 500)
    observe(observed, "a", "RUNNING", AT[0] + 600, job=7)
    observe(observed, "b", "RUNNING", AT[0] + 600, job=8)
    assert found([failed(1, at=AT, jobs={6, 7})], observed) == [(1, "a")]


def test_an_execution_whose_jobs_the_listener_never_named_has_no_run(observed: ObservedRuns) -> None:
    observe(observed, "a", "START", AT[0])
    observe(observed, "a", "COMPLETE", AT[1])
    assert found([failed(1, at=AT, jobs={3})], observed) == []


def test_without_a_job_the_times_of_both_ends_decide(observed: ObservedRuns) -> None:
    for run, ends in {"a": AT, "b": (AT[0], AT[1] + 1), "c": (AT[0] + 1, AT[1])}.items():
        observe(observed, run, "START", ends[0])
        observe(observed, run, "COMPLETE", ends[1])
    assert found([failed(1, at=AT)], observed) == [(1, "a")]


def test_a_run_with_a_job_is_no_run_without_one(observed: ObservedRuns) -> None:
    observe(observed, "a", "START", AT[0])
    observe(observed, "a", "RUNNING", AT[0] + 1, job=1)
    observe(observed, "a", "COMPLETE", AT[1])
    assert found([failed(1, at=AT)], observed) == []


def test_a_run_that_has_not_ended_waits(observed: ObservedRuns) -> None:
    observe(observed, "a", "START", AT[0])
    assert found([failed(1, at=AT)], observed) == []
    observe(observed, "a", "COMPLETE", AT[1])
    assert found([failed(1, at=AT)], observed) == [(1, "a")]


def test_the_path_decides_between_runs_of_the_same_times(observed: ObservedRuns) -> None:
    for run in "ab":
        observe(observed, run, "START", AT[0], output=f"/out/{run}")
        observe(observed, run, "COMPLETE", AT[1], output=f"/out/{run}")
    assert found([failed(1, at=AT, plan="/out/b")], observed) == [(1, "b")]
    both = [failed(1, at=AT, plan="/out/b"), failed(2, at=AT, plan="/out/a")]
    assert found(both, observed) == [(1, "b"), (2, "a")]


def test_where_nothing_decides_no_run_is_called_failed(observed: ObservedRuns) -> None:
    for run in "ab":
        observe(observed, run, "START", AT[0])
        observe(observed, run, "COMPLETE", AT[1])
    assert found([failed(1, at=AT)], observed) == []


def test_a_command_without_a_start_is_found_by_its_end(observed: ObservedRuns) -> None:
    observe(observed, "a", "COMPLETE", AT[1])
    assert found([failed(1, at=AT)], observed) == [(1, "a")]


def test_the_runs_remembered_are_bounded_and_the_oldest_go_first(observed: ObservedRuns) -> None:
    for number in range(RUNS_MAX + 2):
        observe(observed, f"run {number}", "START", AT[0], job=number)
    assert len(observed.runs) == RUNS_MAX
    assert observed.of_job(1) is None
    assert observed.of_job(2) is not None


def test_a_run_has_the_name_that_the_listener_learns_in_the_end(observed: ObservedRuns) -> None:
    observe(observed, "a", "START", AT[0], name="unknown")
    observe(observed, "a", "COMPLETE", AT[1], name="orders")
    assert observed.runs["a"].name == "orders"
