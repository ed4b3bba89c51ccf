"""Matching failed executions with the listener's runs.

They are matched by the facts that both contain, the strongest evidence first:

1. A Spark job belongs to one execution, and the listener names the job in an event of the job's run.
2. The listener copies the times of its START and terminal events from Spark, and Spark's record of the
   execution has the same times, to the millisecond. The path that a run writes to is also in the plan of its
   execution.
3. The times alone, if path and plan do not contradict: both times, or, because the listener often omits
   START on a busy machine, only the end.
4. The path, with times that are a few milliseconds apart.

Evidence weaker than a path and exact times waits until the listener has reported everything. It counts
only if every execution that may belong to the run has failed. A run that names its jobs belongs only to their
execution, and a run whose failure is already reported gets no other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from .plans import command_of, is_around_files, names_path, targets_of, writes

if TYPE_CHECKING:
    from waybill.facets.event import DatasetName

    from .executions import Execution
    from .observed_runs import ObservedRun

SLACK_MS: Final = 5
"""How far the times of a run and of its execution may be apart."""


class Matched(NamedTuple):
    """The result of matching failed executions.

    Attributes:
        pairs: failures, each with its run.
        left: those without a run.
    """

    pairs: list[tuple[Execution, ObservedRun]]
    left: list[Execution]


def match(
    failed: Collection[Execution], runs: Iterable[ObservedRun], succeeded: Collection[Execution] | None = None
) -> Matched:
    """Find the runs of failed executions; neither the order of these nor that of the runs matters.

    Args:
        failed: all failures that have no run yet.
        runs: all runs that the listener has reported.
        succeeded: the executions without an error that ended at the time of a failure, once the listener has
            reported everything about them; None before that, when only strong evidence counts.
    """
    by_job, unnamed = _sorted_out(runs)
    pairs: list[tuple[Execution, ObservedRun]] = []
    left: list[Execution] = []
    for failure in _in_order(failed):
        run = _by_job(failure, by_job)
        if run is None:
            left.append(failure)
        elif not run.is_reported and all(run is not taken for _, taken in pairs):
            pairs.append((failure, run))
    rivals = [other for other in _in_order(succeeded or ()) if _by_job(other, by_job) is None]
    for step in _STEPS if succeeded is not None else _STEPS[:1]:
        for failure, run in _decided(step, left, rivals, unnamed):
            pairs.append((failure, run))
            left.remove(failure)
            unnamed.remove(run)
    return Matched(pairs, left)


def is_part(execution: Execution, run: ObservedRun | None, told: Collection[int]) -> bool:
    """Whether another run tells of an execution: each statement has one record, however it ended.

    A query or a write within a command is told by the command's run. Only files are told by the write within:
    then the command around it is told by that.

    Args:
        execution: an execution that ended.
        run: its run, if the listener reported one.
        told: the statements whose record is known.
    """
    if execution.root_id == execution.id or is_around_files(execution.plan):
        return is_around_files(execution.plan) and execution.statement in told
    is_query = command_of(execution.plan) is None and (run is None or not run.outputs)
    return is_query or (writes(execution.around) and not is_around_files(execution.around))


def lost_writes(left: Iterable[Execution], told: Collection[int]) -> list[Execution]:
    """The failed commands without a run, one of each statement: if possible one that names its target.

    Args:
        left: the failures without a run.
        told: the statements whose record is known.
    """
    lost: dict[int, Execution] = {}
    for failure in sorted(left, key=lambda failure: (not targets_of(failure.plan), failure.id)):
        is_command = command_of(failure.plan) is not None
        if failure.error and is_command and failure.statement not in told:
            lost.setdefault(failure.statement, failure)
    return _in_order(lost.values())


def may_be_of(execution: Execution, sinks: Iterable[DatasetName], run: ObservedRun) -> bool:
    """Whether a run may be that of an execution that wrote: nobody can say of which it is."""
    names = {sink.name for sink in sinks}
    apart_ms = [
        abs(told_ms - known_ms)
        for told_ms, known_ms in (
            (run.started_ms, execution.submitted_ms),
            (run.ended_ms, execution.completed_ms),
        )
        if told_ms is not None
    ]
    return (not names or not names.isdisjoint(run.outputs)) and any(ms <= SLACK_MS for ms in apart_ms)


class _Step(NamedTuple):
    """One kind of evidence: whether an execution matches a run, and whether another one does as well."""

    may_be: Callable[[Execution, ObservedRun], bool]
    is_contested: Callable[[Execution, ObservedRun], bool]


def _has_times(execution: Execution, run: ObservedRun, slack_ms: int = 0) -> bool:
    return (
        run.ended_ms is not None
        and abs(run.ended_ms - execution.completed_ms) <= slack_ms
        and (run.started_ms is None or abs(run.started_ms - execution.submitted_ms) <= slack_ms)
    )


def _writes(execution: Execution, run: ObservedRun) -> bool:
    if targets := targets_of(execution.plan):
        return any(target.name in run.outputs for target in targets)
    return any(names_path(execution.plan, output) for output in run.outputs)


def _may_write(execution: Execution, run: ObservedRun) -> bool:
    """Whether nothing shows that the run wrote elsewhere; a plan may name a table, the run its folder."""
    if not run.outputs or _writes(execution, run):
        return True
    if targets := targets_of(execution.plan):
        insides = [target.name + "/" for target in targets]
        pairs = [(inside, name) for inside in insides for name in run.outputs]
        return any(name.startswith(inside) or inside.startswith(name + "/") for inside, name in pairs)
    return command_of(execution.plan) is not None


def _exactly(execution: Execution, run: ObservedRun) -> bool:
    return _has_times(execution, run) and _writes(execution, run)


def _at_its_times(execution: Execution, run: ObservedRun) -> bool:
    return _has_times(execution, run) and _may_write(execution, run)


def _nearly(execution: Execution, run: ObservedRun) -> bool:
    return _has_times(execution, run, SLACK_MS) and _may_write(execution, run)


_STEPS: Final = (
    _Step(_exactly, _exactly),
    _Step(lambda execution, run: run.started_ms is not None and _at_its_times(execution, run), _nearly),
    _Step(_at_its_times, _nearly),
    _Step(lambda execution, run: _has_times(execution, run, SLACK_MS) and _writes(execution, run), _nearly),
)


def _sorted_out(runs: Iterable[ObservedRun]) -> tuple[dict[int, ObservedRun], list[ObservedRun]]:
    """The runs by the jobs that they name, and those that name none and may still be reported as failed."""
    by_job: dict[int, ObservedRun] = {}
    unnamed: list[ObservedRun] = []
    for run in sorted(runs, key=lambda run: run.run_id):
        for job in run.spark_jobs:
            by_job.setdefault(job, run)
        if not run.spark_jobs and not run.is_reported and run.ended_ms is not None:
            unnamed.append(run)
    return by_job, unnamed


def _in_order(executions: Iterable[Execution]) -> list[Execution]:
    return sorted(executions, key=lambda execution: execution.id)


def _by_job(execution: Execution, by_job: Mapping[int, ObservedRun]) -> ObservedRun | None:
    return next((by_job[job] for job in sorted(execution.spark_jobs) if job in by_job), None)


def _decided(
    step: _Step, failed: Collection[Execution], rivals: Collection[Execution], runs: Collection[ObservedRun]
) -> list[tuple[Execution, ObservedRun]]:
    """The pairs that one kind of evidence makes certain.

    Connected failures and runs are decided together: all of the runs have failed if there is a
    failure for each, even if it is unknown which failure belongs to which run.
    """
    by_end: dict[int, list[ObservedRun]] = defaultdict(list)
    for run in runs:
        by_end[run.ended_ms or 0].append(run)

    def near(execution: Execution) -> list[ObservedRun]:
        ends_ms = range(execution.completed_ms - SLACK_MS, execution.completed_ms + SLACK_MS + 1)
        return [run for end_ms in ends_ms for run in by_end.get(end_ms, ())]

    contested = {run.run_id for rival in rivals for run in near(rival) if step.is_contested(rival, run)}
    candidates: dict[str, list[Execution]] = defaultdict(list)
    by_id: dict[str, ObservedRun] = {}
    for failure in failed:
        for run in near(failure):
            if run.run_id not in contested and step.may_be(failure, run):
                candidates[run.run_id].append(failure)
                by_id[run.run_id] = run
    pairs: list[tuple[Execution, ObservedRun]] = []
    for together in _components(candidates):
        owners = _owners(together, candidates)
        if len(owners) == len(together):
            pairs += [(failure, by_id[run_id]) for run_id, failure in owners.items()]
    return pairs


def _components(candidates: Mapping[str, list[Execution]]) -> list[list[str]]:
    """The ids of runs, grouped by shared candidates, directly or through others."""
    of_failure: dict[int, list[str]] = defaultdict(list)
    for run_id, failures in candidates.items():
        for failure in failures:
            of_failure[failure.id].append(run_id)
    unseen = dict.fromkeys(sorted(candidates))
    components = []
    while unseen:
        component = [unseen.popitem()[0]]
        for run_id in component:
            for failure in candidates[run_id]:
                for other in of_failure[failure.id]:
                    if other in unseen:
                        del unseen[other]
                        component.append(other)
        components.append(sorted(component))
    return components


def _owners(run_ids: list[str], candidates: Mapping[str, list[Execution]]) -> dict[str, Execution]:
    """A distinct failure for each run, for as many runs as possible."""
    owned: dict[int, str] = {}
    failures: dict[int, Execution] = {}

    def find(run_id: str, tried: set[int]) -> bool:
        # Free ones come first, so that executions that ended together are paired in order.
        for failure in sorted(candidates[run_id], key=lambda failure: failure.id in owned):
            if failure.id in tried:
                continue
            tried.add(failure.id)
            if failure.id not in owned or find(owned[failure.id], tried):
                owned[failure.id] = run_id
                failures[failure.id] = failure
                return True
        return False

    for run_id in run_ids:
        find(run_id, set())
    return {run_id: failures[number] for number, run_id in owned.items()}
