"""Which of the listener's runs a failed execution is.

Three facts tie the two together, and none of them is a guess:

1. A Spark job belongs to one execution, and the listener names the job in an event of the run it belongs to.
2. The listener copies the times of its START and terminal events from Spark, to the millisecond, and Spark's
   record of the execution has the same times. By them an execution that failed before its first job (because
   its path already exists, say) is found among the runs without a job.
3. The path that a run writes to is in the plan of its execution. It decides between runs with the same times.

Where more runs remain than failures, none of them is called a failure.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from waybill.spark.tracking.executions import Failed
    from waybill.spark.tracking.observed_runs import ObservedRun, ObservedRuns

log = logging.getLogger("waybill.spark")


def match_failure(failed: Collection[Failed], observed: ObservedRuns) -> list[tuple[Failed, ObservedRun]]:
    """Find the runs of failed executions, as far as the listener has reported them.

    A failure without a match has no run yet, or none at all: the listener reports neither `collect` nor what
    fails in analysis.
    """
    found = [(failure, run) for failure in failed if (run := _by_job(failure, observed))]
    by_times: dict[tuple[int, int], list[Failed]] = defaultdict(list)
    for failure in failed:
        if not failure.spark_jobs:
            by_times[failure.submitted_ms, failure.completed_ms].append(failure)
    for (submitted_ms, completed_ms), failures in by_times.items():
        runs = [
            run
            for run in observed.runs.values()
            # DROP TABLE has no START, nor has what fails before the listener sees it.
            if not run.spark_jobs and run.started_ms in (None, submitted_ms) and run.ended_ms == completed_ms
        ]
        found += _pair(failures, runs)
    return found


def _by_job(failure: Failed, observed: ObservedRuns) -> ObservedRun | None:
    runs = (observed.of_job(job) for job in sorted(failure.spark_jobs))
    return next((run for run in runs if run is not None), None)


def _pair(failures: list[Failed], runs: list[ObservedRun]) -> list[tuple[Failed, ObservedRun]]:
    pairs: list[tuple[Failed, ObservedRun]] = []
    if len(runs) > len(failures):
        runs = [run for run in runs if any(_writes(failure, run) for failure in failures)]
    if len(runs) > len(failures):
        log.warning("%d runs could be that of a failed execution; none is called failed", len(runs))
        return pairs
    for run in runs:
        failure = next((failure for failure in failures if _writes(failure, run)), failures[0])
        failures = [other for other in failures if other is not failure]
        pairs.append((failure, run))
    return pairs


def _writes(failure: Failed, run: ObservedRun) -> bool:
    return any(output in failure.plan for output in run.outputs)
