"""How jobs ran: the table `job_run`, with a row for each run of a job, and one for the last of its files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waybill.facets import FINAL_STATES, RunState
from waybill.facets.chunks import in_chunks

from .batch import LastFile, RunRow
from .elements import HOUR_US, as_json
from .walking import ALWAYS_US

if TYPE_CHECKING:
    import apsw

    from .batch import Batch
    from .elements import Ask

_OF_FILES: Final = ""
"""The run of a job whose runs are files: it is the one of them that ended last, since each has a record."""
_LATEST: Final = 4
"""So many rows are read of a job in each database."""
_ALL: Final = 2**62

_STATE_OF: Final = "SELECT state FROM {}job_run WHERE run = ? AND job = ?"
_PUT: Final = "INSERT OR REPLACE INTO job_run VALUES (?, ?, ?, ?)"
_PUT_TOGETHER: Final = """
INSERT INTO together VALUES (?, ?, ?, ?, ?) ON CONFLICT (job, source, target) DO UPDATE SET
first_us = min(first_us, excluded.first_us), last_hour = max(last_hour, excluded.last_hour)
"""
_TOGETHER_MAX: Final = 10_000
"""Of a run with more pairs of an input and an output, each belongs to all."""
_LATEST_RUNS: Final = """
SELECT {1} FROM json_each(?1) JOIN {0}.job_run ON job = value
WHERE last_us >= ifnull(
    (SELECT last_us FROM {0}.job_run WHERE job = value ORDER BY last_us DESC LIMIT 1 OFFSET ?2), 0
)
"""
_RECENT: Final = """
SELECT last_us, run, job FROM {}.job_run WHERE last_us >= ? ORDER BY last_us DESC LIMIT ?
"""
_STATES: Final = """
SELECT run, job, state FROM all_job_run
WHERE (run, job) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))
"""
_OF_RUNS: Final = "SELECT run, job, state FROM all_job_run WHERE run IN (SELECT value FROM json_each(?))"
_RECENT_MAX: Final = 10_000
"""Of so many runs it is seen which have a state: of all that there are, it would take seconds."""
_AT_ONCE: Final = 500
_LATEST_OF_ALL: Final = f"{_LATEST_RUNS.format('main', '{0}')} UNION ALL {_LATEST_RUNS.format('disk', '{0}')}"
_RUNS: Final = f"{_LATEST_OF_ALL.format('job, run, last_us, state')} ORDER BY 1, 3 DESC"
_NEWEST_RUNS: Final = f"""
SELECT run, job, state FROM all_job_run WHERE (run, job) IN (
    SELECT run, job FROM ({_LATEST_OF_ALL.format("run, job, last_us")}) ORDER BY last_us DESC LIMIT ?2 + 1
)
"""  # noqa: S608 - texts of our own


class LastRun(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The latest run of a job.

    Attributes:
        run: its id; for a job whose runs are files, the did.
        state: its final state; RUNNING: it has not ended.
        started_ms: when it began, in epoch milliseconds.
        ended_ms: when it ended; None: it has not.
        clock_ahead_s: by how much its sender's clock was ahead of the receipts, as of which its events then
            count; None: it was not.
    """

    run: str
    state: str
    started_ms: int
    ended_ms: int | None
    clock_ahead_s: float | None = None


class JobRuns:
    """Puts how jobs ran into one database, and what they read and wrote in one run.

    Args:
        connection: the database.
        schemas: those that have what was told before, each with a dot behind it.
    """

    def __init__(self, connection: apsw.Connection, schemas: Iterable[str]) -> None:
        self._connection = connection
        self._statements = [_STATE_OF.format(schema) for schema in schemas]

    def put(self, batch: Batch) -> None:
        """Put the runs of jobs, and the last files of others."""
        for (run, job), told in batch.runs.items():
            known = [_RUN.decode(row) for row in self._known(run, job.number)]
            merged = told.merge(*known)
            if merged not in known:
                self._put(run, job.number, _last_us(merged.state), merged)
                self._put_together(job.number, merged)
        for job, file in batch.last_files().items():
            files = [_FILE.decode(row) for row in self._known(_OF_FILES, job.number)]
            if (last := max([file, *files])) not in files:
                self._put(_OF_FILES, job.number, _last_us(last), last)

    def _known(self, run: str, job: int) -> Iterator[bytes]:
        rows = (self._connection.execute(statement, (run, job)).get for statement in self._statements)
        return (row for row in rows if row is not None)

    def _put(self, run: str, job: int, last_us: int, told: RunRow | LastFile) -> None:
        self._connection.execute(_PUT, (run, job, last_us, msgspec.msgpack.encode(told)))

    def _put_together(self, job: int, run: RunRow) -> None:
        """Put what it read with what it wrote; of very many, all with everything."""
        pairs = [(source, target) for source in run.inputs for target in run.outputs][: _TOGETHER_MAX + 1]
        if len(pairs) > _TOGETHER_MAX:
            pairs = [*((source, 0) for source in run.inputs), *((0, target) for target in run.outputs)]
        seen = run.state.created_us, _last_us(run.state) // HOUR_US
        self._connection.executemany(_PUT_TOGETHER, sorted((job, *pair, *seen) for pair in pairs))


def last_runs(ask: Ask, jobs: Iterable[int], as_of_us: int = ALWAYS_US) -> dict[int, LastRun]:
    """By job, given by number, its latest run that began by an instant; one that has none is left out.

    Of the files of a job only the last is known: if it began later, there is none.
    """
    count = _LATEST if as_of_us == ALWAYS_US else _ALL
    latest = ((job, _latest(runs, as_of_us)) for job, runs in _runs_of(ask, jobs, count))
    return {job: run for job, run in latest if run is not None}


def ended_runs(ask: Ask, jobs: Iterable[int]) -> dict[int, list[LastRun]]:
    """By job, given by number, all its runs that have ended; of files, only the last is known."""
    return {
        job: [run for _, state in runs if (run := _told(state, ALWAYS_US)).ended_ms is not None]
        for job, runs in _runs_of(ask, jobs, _ALL)
    }


def list_outputs(ask: Ask, runs: Iterable[str]) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    """Each of some runs with its job and the datasets that it wrote itself, both given by number."""
    for run, job, state in ask(_OF_RUNS, (as_json(runs),)):
        yield run, job, _RUN.decode(state).outputs


def recent_runs(ask: Ask, since_us: int) -> Iterator[tuple[int, LastRun]]:
    """The newest runs with their jobs, given by number, of which something was told since an instant.

    The one that was told of last comes first; there are 10,000 at most.
    """
    # An index has what these rows ask for; the states are read of those that are looked at.
    rows = [row for one in ("main", "disk") for row in ask(_RECENT.format(one), (since_us, _RECENT_MAX))]
    newest = dict.fromkeys((run, job) for _, run, job in sorted(rows, reverse=True))
    for some in in_chunks(islice(newest, _RECENT_MAX), lambda _: 1, _AT_ONCE):
        states = _merge_rows(ask(_STATES, (as_json(some),)))
        yield from ((job, _told(states[run, job], ALWAYS_US)) for run, job in some)


def newest_runs(ask: Ask, jobs: Iterable[int], count: int) -> list[tuple[int, LastRun]]:
    """The runs of some jobs, given by number, that began last, each with its job; of files, only the last.

    Some runs more are looked at than wanted, since what was told last may be of an earlier one.
    """
    runs = _merge_rows(ask(_NEWEST_RUNS, (as_json(jobs), 2 * count - 1)))
    told = [(job, _told(state, ALWAYS_US)) for (_, job), state in runs.items()]
    return sorted(told, key=lambda one: (-one[1].started_ms, one[1].run))[:count]


def _merge_rows(rows: Iterable[tuple[str, int, bytes]]) -> dict[tuple[str, int], RunRow | LastFile]:
    """What the databases tell of each run of a job, given by number."""
    found: defaultdict[tuple[str, int], list[RunRow | LastFile]] = defaultdict(list)
    for run, job, state in rows:
        found[run, job].append(_decode(run, state))
    return {key: _merge(states) for key, states in found.items()}


def _runs_of(
    ask: Ask, jobs: Iterable[int], count: int
) -> Iterator[tuple[int, list[tuple[int, RunRow | LastFile]]]]:
    """Of each job some of its runs, and when each was told last, the one that was told last first."""
    for job, rows in groupby(ask(_RUNS, (as_json(jobs), count - 1)), itemgetter(0)):
        runs: dict[str, tuple[int, list[RunRow | LastFile]]] = {}
        for _, run, last_us, state in rows:
            runs.setdefault(run, (last_us, []))[1].append(_decode(run, state))
        yield job, [(last_us, _merge(states)) for last_us, states in runs.values()]


def _latest(runs: Iterable[tuple[int, RunRow | LastFile]], as_of_us: int) -> LastRun | None:
    latest: LastRun | None = None
    for last_us, state in runs:
        if latest is not None and last_us // 1_000 < latest.started_ms:
            break  # no run begins after what was told last of it
        told = _told(state, as_of_us)
        is_later = latest is None or (told.started_ms, told.run) > (latest.started_ms, latest.run)
        if is_later and told.started_ms * 1_000 <= as_of_us:
            latest = told
    return latest


def _decode(run: str, row: Any) -> RunRow | LastFile:  # noqa: ANN401 - a value of a row
    return _FILE.decode(row) if run == _OF_FILES else _RUN.decode(row)


def _merge(states: list[Any]) -> RunRow | LastFile:
    """What is known of one run, or the last of some files."""
    merged: RunRow | LastFile = (
        max(states) if isinstance(states[0], LastFile) else states[0].merge(*states[1:])
    )
    return merged


def _last_us(state: RunState | LastFile) -> int:
    """When it was told last."""
    if isinstance(state, LastFile):
        return state.ended_us
    return max([state.begun_us, state.created_us, *(one.time_us for one in state.endings)])


def _told(told: RunRow | LastFile, as_of_us: int) -> LastRun:
    ahead_s = told.ahead_us / 1e6 or None
    if isinstance(told, LastFile):
        return LastRun(
            run=told.did,
            state=told.final_state,
            started_ms=told.began_us // 1_000,
            ended_ms=told.ended_us // 1_000,
            clock_ahead_s=ahead_s,
        )
    state = told.state
    ending = state.ending
    started_us = state.begun_us or state.created_us
    is_open = ending is None or not state.attempts.has_ended or ending.time_us > as_of_us
    if ending is not None and not is_open:
        started_us = min(started_us, ending.time_us)  # as its record has it
    return LastRun(
        run=state.run_id,
        state="RUNNING" if ending is None or is_open else str(FINAL_STATES[ending.severity]),
        started_ms=started_us // 1_000,
        ended_ms=None if ending is None or is_open else ending.time_us // 1_000,
        clock_ahead_s=ahead_s,
    )


_RUN: Final = msgspec.msgpack.Decoder(RunRow)
_FILE: Final = msgspec.msgpack.Decoder(LastFile)
