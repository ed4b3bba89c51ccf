"""Datasets that nobody uses, or that nobody writes any more, and jobs that do the same."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from ..analyzers import without_values
from .elements import Ask, EdgeKind, Node
from .properties import is_drop, properties_of, sql_in
from .runs import LastRun, ended_runs, last_runs
from .walking import Nodes, list_ends, nodes_with

HOUR_MS: Final = 3_600_000

_DATASETS: Final = "SELECT number FROM all_node WHERE kind = 'dataset'"
_USES: Final = """
SELECT {}, max(last_hour) FROM all_edge WHERE kind IN (?, 'feed') AND confidence > 0 GROUP BY 1
"""
_AHEAD: Final = """
SELECT number, (said_us - received_us) / 1e6 FROM all_ahead JOIN all_node USING (namespace, name)
WHERE kind = 'dataset'
"""
_EDGES: Final = "SELECT DISTINCT source, target FROM all_edge WHERE kind = ?"
_WITH_SQL: Final = "SELECT DISTINCT node FROM all_property WHERE key = 'sql'"
_TOKEN: Final = re.compile(r'"[^"]*"|`[^`]*`|\w+|[^\s;]')


class ListedDataset(msgspec.Struct, frozen=True):
    """A dataset of a list.

    Attributes:
        node: the dataset.
        written_ms: the start of the hour in which a job wrote it last; None: no job did.
        clock_ahead_s: by how much the clock was ahead of the last run of the jobs that write it, whose events
            count as of their receipt; None: it was not.
    """

    node: Node
    written_ms: int | None
    clock_ahead_s: float | None = None


class DatasetList(msgspec.Struct, frozen=True):
    """Datasets, by their names; one that was dropped last is left out."""

    datasets: tuple[ListedDataset, ...]


class Producer(msgspec.Struct, frozen=True):
    """A job that does what another one does, too.

    Attributes:
        job: the job.
        runs: how many of its runs have ended, as far as they are known.
        took_s: how long these took together. Of a job whose runs are files, only the last is known.
    """

    job: Node
    runs: int
    took_s: float


class Duplicate(msgspec.Struct, frozen=True):
    """Jobs that do the same.

    Attributes:
        why: ``output``: they write one dataset; ``sql``: they have the same inputs and, but for literals,
            white space and comments, the same SQL.
        dataset: the dataset that they write.
        producers: the jobs, the longest-running first.
    """

    why: Literal["output", "sql"]
    dataset: Node | None
    producers: tuple[Producer, ...]

    @property
    def took_s(self) -> float:
        """How long all their runs took together."""
        return sum(producer.took_s for producer in self.producers)


class DuplicateList(msgspec.Struct, frozen=True):
    """Jobs that do the same, the most costly first."""

    duplicates: tuple[Duplicate, ...]


def list_unused(ask: Ask, *, written: bool) -> DatasetList:
    """The datasets that no job reads or writes or, if `written`, those that are written and never read.

    If a dataset comes from another one without a job, that is a use of both, too.
    """
    read, wrote = _uses(ask, "source", "read"), _uses(ask, "target", "write")
    every = {number for (number,) in ask(_DATASETS, ())}
    listing = _Listing(ask)
    unused = {
        one
        for one in listing.settle((wrote.keys() if written else every) - read.keys())
        if listing.last_hour(one, read) is None and (listing.last_hour(one, wrote) is not None) == written
    }
    return listing.told(unused, wrote)


def list_stale(ask: Ask, before_ms: int) -> DatasetList:
    """The datasets that a job wrote, and none since an instant, in epoch milliseconds; to the hour."""
    wrote = _uses(ask, "target", "write")
    listing = _Listing(ask)
    ones = listing.settle({number for number, hour in wrote.items() if (hour + 1) * HOUR_MS <= before_ms})
    last = {one: listing.last_hour(one, wrote) or 0 for one in ones}
    return listing.told({one for one, hour in last.items() if (hour + 1) * HOUR_MS <= before_ms}, wrote)


def list_duplicates(ask: Ask) -> DuplicateList:
    """The jobs that write one dataset, and those that do the same from the same inputs.

    A job that starts another one of them, or contains it, does nothing twice.
    """
    writers: defaultdict[int, set[int]] = defaultdict(set)
    for job, dataset in ask(_EDGES, ("write",)):
        writers[dataset].add(job)
    same = {number for row in ask(_EDGES, ("same",)) for number in row}
    several = {dataset for dataset, jobs in writers.items() if len(jobs) > 1 or dataset in same}
    listing = _Listing(ask)
    ones = listing.settle(several)
    outputs = {
        one: {job for number in listing.of([one]) for job in writers.get(number, ())}
        for one in ones - listing.dropped(ones)
    }
    groups: list[tuple[int, set[int]]] = [*outputs.items(), *((0, jobs) for jobs in _same_work(ask))]
    every = {job for _, jobs in groups for job in jobs}
    outer: defaultdict[int, set[int]] = defaultdict(set)
    for kind in (EdgeKind.START, EdgeKind.CONTAIN):
        for job, inner in list_ends(ask, "source", every, kind):
            outer[inner].add(job)
    alone = [(one, jobs - {job for one in jobs for job in outer[one]}) for one, jobs in groups]
    found = [(one, jobs) for one, jobs in alone if len(jobs) > 1]
    runs = ended_runs(ask, {job for _, jobs in found for job in jobs})
    named = nodes_with(ask, {*(one for one, _ in found), *(job for _, jobs in found for job in jobs)})
    told = []
    for one, jobs in found:
        costs = [(job, [(run.ended_ms or 0) - run.started_ms for run in runs.get(job, ())]) for job in jobs]
        producers = [Producer(named[job], len(took), sum(took) / 1_000) for job, took in costs]
        producers.sort(key=lambda producer: (-producer.took_s, producer.job))
        told.append(Duplicate("output" if one else "sql", named.get(one), tuple(producers)))
    return DuplicateList(
        tuple(sorted(told, key=lambda some: (-some.took_s, some.producers[0].job, some.why)))
    )


class _Listing(Nodes):
    def last_hour(self, one: int, uses: Mapping[int, int]) -> int | None:
        """The last hour in which a dataset was used by any of its names; None: it never was."""
        return max((uses[number] for number in self.of([one]) if number in uses), default=None)

    def dropped(self, ones: Iterable[int]) -> set[int]:
        """Those of some datasets that were dropped last."""
        facets = properties_of(self.ask, self.of(ones), "lifecycleStateChange")
        return {self.one[number] for (number, _), facet in facets.items() if is_drop(facet)}

    def told(self, ones: set[int], wrote: Mapping[int, int]) -> DatasetList:
        """Some of the datasets as a list."""
        hours = {one: self.last_hour(one, wrote) for one in ones - self.dropped(ones)}
        writers = list_ends(self.ask, "target", self.of(hours), EdgeKind.WRITE)
        runs = last_runs(self.ask, {job for job, _ in writers})
        last: dict[int, LastRun] = {}
        for run, number in ((runs[job], number) for job, number in writers if job in runs):
            one = self.one[number]
            last[one] = max(last.get(one, run), run, key=lambda some: some.started_ms)
        alone = {self.one.get(number, number): ahead_s for number, ahead_s in self.ask(_AHEAD, ())}
        found = (
            ListedDataset(
                self.known[one],
                None if hour is None else hour * HOUR_MS,
                last[one].clock_ahead_s if one in last else alone.get(one),
            )
            for one, hour in hours.items()
        )
        return DatasetList(tuple(sorted(found, key=lambda one: one.node)))


def _uses(ask: Ask, end: str, kind: str) -> dict[int, int]:
    """By dataset at an end of edges of a kind, the last hour in which one was told."""
    return dict(ask(_USES.format(end), (kind,)))


def _same_work(ask: Ask) -> Iterable[set[int]]:
    """The sets of jobs that have the same inputs and, normalized, the same SQL."""
    facets = properties_of(ask, [job for (job,) in ask(_WITH_SQL, ())], "sql")
    jobs: defaultdict[str, set[int]] = defaultdict(set)
    for (job, _), facet in facets.items():
        jobs[normalized(sql_in(facet))].add(job)
    alike = {job: text for text, some in jobs.items() if text and len(some) > 1 for job in some}
    rows = list_ends(ask, "target", alike, EdgeKind.READ)
    nodes = Nodes(ask)
    nodes.settle(dataset for dataset, _ in rows)
    inputs: defaultdict[int, set[int]] = defaultdict(set)
    for dataset, job in rows:
        inputs[job].add(nodes.one[dataset])
    groups: defaultdict[tuple[str, frozenset[int]], set[int]] = defaultdict(set)
    for job, read in inputs.items():
        groups[alike[job], frozenset(read)].add(job)
    return (some for some in groups.values() if len(some) > 1)


def normalized(sql: str) -> str:
    """A text without comments and white space, with words in lower case, and with `?` for its literals."""
    tokens = _TOKEN.findall(without_values(sql, keep_escaped=True))
    return " ".join(one if one[0] in '"`' else one.lower() for one in tokens)
