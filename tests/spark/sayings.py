"""What Spark and its listener say of executions and runs, made by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from waybill.spark.tracking.executions import Execution

START_MS = 1_790_000_000_000


def instant(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


def event_of(
    run: str,
    kind: str,
    at_ms: int,
    *,
    job: int | None = None,
    output: str | None = "/out/a",
    name: str = "a job",
    parent: str | None = None,
    application: str | None = None,
) -> bytes:
    """An event of the listener's."""
    facets: dict[str, object] = {} if job is None else {"spark_jobDetails": {"jobId": job}}
    if parent is not None:
        facets["parent"] = {"run": {"runId": parent}, "job": {"namespace": "tests", "name": "orders"}}
    if application is not None:
        facets["spark_applicationDetails"] = {"applicationId": application}
    kind_of_job = "SQL_JOB" if parent else "APPLICATION"
    event = {
        "eventTime": instant(at_ms),
        "eventType": kind,
        "run": {"runId": run, "facets": facets},
        "job": {"namespace": "tests", "name": name, "facets": {"jobType": {"jobType": kind_of_job}}},
        "producer": "https://example.org/listener",
        "outputs": [] if output is None else [{"namespace": "file", "name": output}],
    }
    return json.dumps(event).encode()


PLANS: Final = dict(
    plan.split("\n", 1)
    for plan in Path(__file__).with_name("plans.txt").read_text("utf-8").split("#### ")[1:]
)
"""Plans as Spark prints them, by what they are of."""

MERGE, CTAS, COLLECT = PLANS["merge"], PLANS["create as select"], PLANS["collect"]


def files(path: str) -> str:
    """The plan of a write of files."""
    return PLANS["files"].replace("/out/a", path)


def ended(
    number: int,
    *,
    at: tuple[int, int],
    jobs: Iterable[int] = (),
    plan: str = files("/out/a"),
    error: str = "boom",
    within: int | None = None,
    around: str = "",
    wrote: bool = False,
    job_tags: tuple[str, ...] = (),
) -> Execution:
    return Execution(
        id=number,
        root_id=number if within is None else within,
        submitted_ms=at[0],
        completed_ms=at[1],
        spark_jobs=frozenset(jobs),
        error=error,
        plan=plan,
        job_tags=job_tags,
        around=around,
        wrote=wrote,
    )


AT = (START_MS, START_MS + 40)


def log_lines(application: str, *executions: Execution, is_ended: bool = True) -> list[str]:
    """The event log of an application, as Spark writes it."""
    sql = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecution"
    begin = {"App Name": "orders", "App ID": application, "Timestamp": START_MS - 1000, "User": "tests"}
    events: list[dict[str, object]] = [
        {"Event": "SparkListenerLogStart", "Spark Version": "4.0.0"},
        {"Event": "SparkListenerApplicationStart", **begin},
    ]
    for one in executions:
        start: dict[str, object] = {"executionId": one.id, "rootExecutionId": one.root_id}
        start |= {"time": one.submitted_ms} | ({"jobTags": one.job_tags} if one.job_tags else {})
        events.append({"Event": f"{sql}Start", **start, "physicalPlanDescription": one.plan})
        for job in one.spark_jobs:
            properties = {"spark.sql.execution.id": str(one.id), "spark.rdd.scope": "{}"}
            events.append({"Event": "SparkListenerJobStart", "Job ID": job, "Properties": properties})
        end = {"executionId": one.id, "time": one.completed_ms, "errorMessage": one.error}
        events.append({"Event": f"{sql}End", **end})
    if is_ended:
        events.append({"Event": "SparkListenerApplicationEnd", "Timestamp": START_MS + 60_000})
    return [json.dumps(event, separators=(",", ":")) for event in events]
